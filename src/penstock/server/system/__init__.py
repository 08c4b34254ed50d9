"""The system account: events that the server publishes and requests that it answers."""
