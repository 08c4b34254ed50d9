"""The format `penstock` for writing: rows become messages, up to exactly once."""
