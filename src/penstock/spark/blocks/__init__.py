"""The format `penstock-blocks`: block directories as tables, without a server."""
