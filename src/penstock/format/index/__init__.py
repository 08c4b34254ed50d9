"""The index of one block: where its messages lie, by sequence, subject and time."""
