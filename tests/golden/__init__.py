"""Stores that every released format version wrote, kept for ever, and what they hold."""
