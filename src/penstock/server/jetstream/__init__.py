"""JetStream as a part of the server: accounts, API subscriptions, resources, remote links."""
