"""The order of a table's subjects by name, and listings of them: both made in steps."""
