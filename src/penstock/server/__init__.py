"""The server: where the concrete parts meet. `server.Server` is the one object to start and stop."""
