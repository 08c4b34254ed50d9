"""Measuring a NATS server from outside: load processes, runs, and two servers side by side."""
