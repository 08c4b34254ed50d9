"""The JetStream API as documents: what clients ask, and what they are answered.

`requests` and `responses` declare them; there are no handlers yet. Pure.
"""
