"""Subject matching, slow and obviously right: the oracle for `penstock.subjects`."""

from __future__ import annotations

import itertools


def matches(pattern: bytes, subject: bytes) -> bool:
    """Compare token by token."""
    return _tokens_match(pattern.split(b"."), subject.split(b"."))


def _tokens_match(wanted: list[bytes], found: list[bytes]) -> bool:
    if wanted == [b">"]:
        return len(found) >= 1
    if not wanted or not found:
        return wanted == found
    return wanted[0] in (b"*", found[0]) and _tokens_match(wanted[1:], found[1:])


def is_valid(subject: bytes) -> bool:
    """Read the rules out one by one."""
    tokens = subject.split(b".")
    printable = all(byte > 0x20 and byte != 0x7F for byte in subject)
    return b"" not in tokens and b">" not in tokens[:-1] and printable


def every_subject(words: tuple[bytes, ...], tokens_max: int) -> list[bytes]:
    """List all subjects of at most `tokens_max` tokens made of `words`."""
    return [
        b".".join(tokens)
        for count in range(1, tokens_max + 1)
        for tokens in itertools.product(words, repeat=count)
    ]
