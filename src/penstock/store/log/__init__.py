"""The messages of a store: the block being written, the sealed ones, and queries over both."""
