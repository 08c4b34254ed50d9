"""Text of the configuration, the wire and the log: times, durations, quoting, and Go's JSON."""
