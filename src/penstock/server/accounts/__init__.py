"""Accounts and users of a running server: who may connect, and what accounts share."""
