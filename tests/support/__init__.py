"""What tests of several packages need."""
