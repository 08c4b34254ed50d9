"""SQL over streams: tables for what a statement mentions, and what becomes of results."""
