"""Accounts and users that operators describe in signed JWTs."""
