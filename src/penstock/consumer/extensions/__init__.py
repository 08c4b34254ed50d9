"""What a consumer's metadata can ask for beyond NATS: dead letters and ordered keys."""
