"""Who gets a message: subscriptions by subject, and the way from a publish to its receivers."""
