"""Message traces: the headers that ask for one, and the report that is published."""
