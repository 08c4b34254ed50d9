"""Envelopes that are compressed and not encrypted, made and opened without a Python object each."""

class Packer:
    """Makes and opens envelopes, one at a time; for compiled code."""
