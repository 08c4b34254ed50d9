"""What a store does besides appending and reading: limits, expiry, removal, compaction, repair."""
