"""Rewrites that take a compiled loop apart and write it anew, and the pipelines that the notes name."""
