"""Slow and obviously right versions of what the package does fast."""
