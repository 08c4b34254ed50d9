"""The tests of Penstock; the tree mirrors src/penstock. `models` and `support` are shared."""
