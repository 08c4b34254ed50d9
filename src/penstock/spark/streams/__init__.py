"""The format `penstock` for reading: streams as tables, through their server."""
