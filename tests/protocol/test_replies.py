"""Replies against a dictionary that keeps its order, and keys that were made to collide."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.protocol.replies import Replies

KEYS = [b"_INBOX.%d" % number for number in range(40)]
CHAIN_MAX = 64


@given(st.lists(st.tuples(st.sampled_from(["put", "drop"]), st.sampled_from(KEYS)), max_size=200))
def test_what_is_remembered_is_what_a_dictionary_remembers(steps: list[tuple[str, bytes]]) -> None:
    replies = Replies()
    model: dict[bytes, tuple[bytes, int]] = {}

    for now_ns, (step, key) in enumerate(steps):
        if step == "put":
            value = model.pop(key)[0] if key in model else b"%d" % now_ns
            model[key] = (value, now_ns)
            replies.put(key, b"%d" % now_ns, now_ns)
        else:
            assert replies.drop(key) == (model.pop(key, None) is not None)
        assert replies.count == len(model)

    assert replies.keys() == list(model)
    assert [replies.get(key) for key in KEYS] == [model.get(key) for key in KEYS]


def colliding(count: int) -> list[bytes]:
    """Return subjects of one hash: bit 63 of a word, and what it does to the next, cancel out."""
    keys = []
    for number in range(count):
        key = bytearray(b"aaaaaaaa" * 16)
        for place in range(8):
            if number >> place & 1:
                start = 16 * place
                key[start + 7] ^= 0x80
                key[start + 15] ^= 0x80
                key[start + 12] ^= 0x04
        keys.append(bytes(key))
    return keys


def test_keys_that_were_made_to_collide_forget_each_other_and_nobody_else() -> None:
    replies = Replies()
    replies.put(b"innocent", b"", 0)

    made = colliding(200)
    for key in made:
        replies.put(key, b"", 1)

    assert replies.count == CHAIN_MAX + 1
    assert replies.keys() == [b"innocent", *made[-CHAIN_MAX:]]
