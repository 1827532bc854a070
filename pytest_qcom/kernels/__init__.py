"""Kernels, each declared once: options, build, launch geometry, oracle, tolerance, cases."""
