"""Who may: users and their secrets, permissions, accounts, certificates and TLS.

Nothing here opens a connection or knows one. Other packages use `authenticator` (who is it),
`permissions` (what may it), `accounts` (where does it belong), `tls` (contexts for listeners) and
`identifiers` (names that the server makes up).
"""
