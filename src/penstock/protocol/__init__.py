"""The client protocol as bytes: no sockets, no clock, no waiting."""
