"""Messages that are published later, once or again and again."""
