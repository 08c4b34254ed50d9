"""Tests of connections on real sockets."""
