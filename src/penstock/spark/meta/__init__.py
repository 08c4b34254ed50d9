"""The format `penstock-meta`: what there is, counted without a scan."""
