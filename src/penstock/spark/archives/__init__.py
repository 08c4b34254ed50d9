"""Archived streams: their files and manifests, and the format `penstock-archive`."""
