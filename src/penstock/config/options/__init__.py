"""Every option of the server, declared once, and how its value is read."""
