"""Names that the server makes up."""

from __future__ import annotations

import os
import random
import re

from penstock.protocol.nkeys import Prefix, find_public_key
from penstock.security.identifiers import UniqueIds, new_nonce, new_server_id, new_xkey


def test_a_server_has_a_name_in_the_form_of_a_public_key() -> None:
    seed = os.urandom(32)

    name = new_server_id(lambda size: seed[:size])

    assert name.startswith("N")
    assert find_public_key(name, Prefix.SERVER) == seed


def test_a_curve_key_has_the_form_of_one() -> None:
    seed = os.urandom(32)

    name = new_xkey(lambda size: seed[:size])

    assert name.startswith("X")
    assert find_public_key(name, Prefix.CURVE) == seed


def test_names_differ_unless_the_random_bytes_are_the_same() -> None:
    for make in (new_server_id, new_xkey):
        assert make(os.urandom) != make(os.urandom)
        assert make(bytes) == make(bytes)


def test_a_nonce_is_eleven_random_bytes_as_fifteen_characters() -> None:
    assert new_nonce(lambda size: b"\xff" * size) == "______________8"
    assert re.fullmatch(r"[A-Za-z0-9_-]{15}", new_nonce(os.urandom))
    assert new_nonce(os.urandom) != new_nonce(os.urandom)


def test_unique_ids_have_22_characters_and_do_not_repeat() -> None:
    ids = UniqueIds(random.Random(1).randbytes)

    made = [ids.next() for _ in range(10_000)]

    assert len(set(made)) == len(made)
    assert all(re.fullmatch(r"[0-9A-Za-z]{22}", each) for each in made)
    assert len({each[:12] for each in made}) == 1


def test_a_new_prefix_is_drawn_when_the_counter_ends() -> None:
    ids = UniqueIds(random.Random(1).randbytes)
    first = ids.next()
    ids._sequence = 62**10 - 1

    after = ids.next()

    assert after[:12] != first[:12]
    assert re.fullmatch(r"[0-9A-Za-z]{22}", after)
