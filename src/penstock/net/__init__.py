"""Connections and listeners: the Python half of what `routing` compiles, on the loop's thread."""
