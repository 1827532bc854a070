"""The declared patches, one family a file."""
