"""Counters: a message with `Nats-Incr` adds to the last value of its subject.

The body that is stored is the new value, `{"val":"5"}`, of any length. A message from another
counter stream brings that stream's value; what is added is by how much it has grown, and
`Nats-Counter-Sources` keeps the last value of each origin.

Numbers are decimals of unbounded precision: to convert thousands of digits to binary and back takes
time that grows with their square. Compiled code adds short ones by itself: see `totals`.

Pure, but that `total_of` reads the store. Thread: the event loop's; `rules` and `judge` call it,
for messages whose increment is a number.
"""

from __future__ import annotations

import re
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Final

import msgspec

from penstock import error_codes
from penstock.errors import ApiError, RecordNotFound, StoreError
from penstock.protocol.headers import value_of, with_value
from penstock.store.filestore import FileStore
from penstock.stream.publish.message import (
    COUNTER_SOURCES,
    INCREMENT,
    STREAM_SOURCE,
    IncomingMessage,
)
from penstock.text.json.codec import to_json

_NUMBER: Final = re.compile(rb"[+-]?[0-9]+")
_EXACT: Final = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)

Sources = dict[str, dict[str, str]]
"""The last value of each subject of each origin."""


class Total(msgspec.Struct):
    """A counter's value and those of its origins."""

    value: Decimal = Decimal(0)
    sources: Sources = msgspec.field(default_factory=dict)


class _Body(msgspec.Struct):
    val: str | None = ""


def total_of(store: FileStore, subject: bytes) -> Total:
    """Return the stored value of a counter; raise ApiError if the last message is no counter."""
    try:
        last = store.load_last(subject)
    except RecordNotFound:
        return Total()
    except StoreError as error:
        raise ApiError(error_codes.MESSAGE_COUNTER_BROKEN) from error
    sources: Sources = {}
    told = value_of(last.headers, COUNTER_SOURCES)
    if told:
        try:
            sources = msgspec.json.decode(told, type=Sources)
        except msgspec.DecodeError as error:
            raise ApiError(error_codes.MESSAGE_COUNTER_BROKEN) from error
    return Total(_value_in(last.payload), sources)


def apply(message: IncomingMessage, total: Total) -> None:
    """Add a message's increment to a counter, and set the message's body to the new value."""
    increment = Decimal(message.value(INCREMENT).decode())
    origin = message.value(STREAM_SOURCE)
    if origin:
        increment = _growth(message, origin, total)
        message.headers = with_value(message.headers, INCREMENT, _digits(increment))
    total.value = _EXACT.add(total.value, increment)
    message.body = b'{"val":"%b"}' % _digits(total.value)
    if total.sources:
        # Keys in order, as the reference server writes maps.
        told = {name: dict(sorted(subs.items())) for name, subs in sorted(total.sources.items())}
        message.headers = with_value(message.headers, COUNTER_SOURCES, to_json(told))


def ack_value(message: IncomingMessage) -> bytes:
    """Return the field of an acknowledgement that has the counter's value."""
    return b',"val":"%b"' % message.body[8:-2]


def _growth(message: IncomingMessage, origin: bytes, total: Total) -> Decimal:
    """Return by how much an origin's counter has grown since its last value."""
    value = _value_in(message.body)
    fields = origin.decode("utf-8", "replace").split(" ")
    subject = fields[4] if len(fields) >= 5 else message.subject.decode("utf-8", "replace")
    known = total.sources.setdefault(fields[0], {})
    before = _number(known.get(subject, ""))
    known[subject] = _digits(value).decode()
    return _EXACT.subtract(value, before)


def _value_in(body: bytes) -> Decimal:
    try:
        text = msgspec.json.decode(body, type=_Body).val
    except msgspec.DecodeError as error:
        raise ApiError(error_codes.MESSAGE_COUNTER_BROKEN) from error
    return _number(text or "")


def _number(text: str) -> Decimal:
    is_number = _NUMBER.fullmatch(text.encode("utf-8", "replace")) is not None
    return Decimal(text) if is_number else Decimal(0)


def _digits(value: Decimal) -> bytes:
    # Minus zero is written as zero.
    return format(value if value else Decimal(0), "f").encode()
