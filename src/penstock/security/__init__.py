"""Users and their secrets, permissions, accounts, certificates and TLS.

Nothing here opens a connection or refers to one. Other packages use `authenticator` (who is the
client), `permissions` (what may it do), `accounts` (which subject space is it in), `tls` (contexts
for listeners) and `identifiers` (names that the server generates). `jwt/` does the same for
accounts and users of operators.
"""
