"""Commands that run Spark: `penstock sql`, `penstock run` and `penstock spark …`."""
