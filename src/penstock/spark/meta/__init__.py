"""The format `penstock-meta`: streams, blocks, consumers and subjects, counted without a scan."""
