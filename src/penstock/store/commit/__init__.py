"""Group commit: what was appended meanwhile is written and synced together."""
