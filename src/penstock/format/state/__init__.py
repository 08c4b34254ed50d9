"""Documents of a store: a stream's checkpoint, a consumer's state, and how documents are sealed."""
