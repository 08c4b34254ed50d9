"""A stream's configuration: its fields, its rules, and how it is created and updated."""
