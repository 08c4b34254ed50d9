"""Commands about streams, consumers, buckets and objects of a server."""
