"""SQL over streams: tables for the names in a statement, and results on their way out."""
