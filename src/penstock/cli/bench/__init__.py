"""`penstock bench`: how fast a NATS server is, or two of them side by side."""
