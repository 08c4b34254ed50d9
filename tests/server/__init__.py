"""Tests of the server as a whole, and of the process that it is."""
