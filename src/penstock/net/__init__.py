"""Connections and listeners: the Python half of what `routing` compiles, on the event loop's thread."""
