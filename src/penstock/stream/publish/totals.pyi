class Totals:
    """The values of one stream's counters; for compiled code."""
