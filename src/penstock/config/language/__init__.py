"""The NATS configuration language: text in, values with their place in the file out."""
