"""The same script, the real server and ours: what comes back must be the same."""
