"""The format `penstock-kv`: buckets as tables of keys and values."""
