"""The server: where the concrete parts meet. `server.Server` is what to start and stop."""
