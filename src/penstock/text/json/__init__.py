"""JSON documents as Go's encoding/json reads and writes them, so that clients see no difference."""
