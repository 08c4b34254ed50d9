"""Clients of other languages and of browsers, each against the real server and ours."""
