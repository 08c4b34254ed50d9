"""The same script for the real server and ours: what comes back must be the same."""
