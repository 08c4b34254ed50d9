"""Whole stores from elsewhere: snapshots, Go's directories, JSON lines."""
