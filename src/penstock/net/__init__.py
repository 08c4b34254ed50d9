"""Connections and listeners, on the event loop's thread; `link` is a connection's compiled half."""
