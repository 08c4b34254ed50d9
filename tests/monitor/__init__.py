"""Monitoring: pages, metrics and their HTTP server, compared with the reference server."""
