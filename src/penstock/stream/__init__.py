"""What a stream is: its configuration so far, and the rules that a configuration keeps.

`config` declares it, `creation` and `updates` decide what becomes of a request; the rest are their
rules, one group each. Pure: no files, no network, no clock.
"""
