"""Captured graphs of tinygrad as data, and what rewrites them."""
