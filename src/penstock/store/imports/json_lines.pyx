"""The old layout's `messages.jsonl`: one JSON object a line, read as a stream of messages.

    {"sequence": 7, "subject": "orders.new", "payload": "aGVsbG8=",
     "timestamp": "2024-05-06T07:08:09.123456789Z",
     "headers": {"Nats-Msg-Id": "a7", "Trace": ["x", "y"]}}

    sequence  or seq    integer, at least 1, above that of the line before; gaps are fine
    subject             text, not empty
    payload   or data   base64, or null for none
    timestamp or time   RFC 3339 with up to nine digits of a second, or Unix nanoseconds
    headers             may be missing or null; an object of name to text or list of texts, or the
                        whole header block as one text

Other fields are passed over; empty lines too. A line is read or it is an error: nothing is guessed.

Invariant: no more than a chunk and a line are held; a line is refused before it is gathered
if it is longer than any message can be.

Pure but for the file that it is given; one thread. Compiled because a store of millions of lines is
read before it opens.
"""

import binascii
import json
import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

import msgspec

from libc.stdint cimport int64_t

from penstock.errors import CorruptStore, FormatError
from penstock.format.record import check_sizes
from penstock.limits import JSON_LINE_BYTES_MAX, READ_CHUNK_BYTES

cdef object SEQ_MAX = 2**63 - 1
cdef object TIME_NS_MIN = -(2**63)
cdef object TIME_NS_MAX = 2**63 - 1
cdef object SECOND = timedelta(seconds=1)
cdef object EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
cdef object MOMENT = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII
)
cdef object HEADER_NAME = re.compile(r"[!-9;-~]+")
cdef object LINE_ENDS = re.compile(r"[\r\n]")
# Half the time of json.loads, which looks for white space on both sides of every value.
cdef object scan = json.JSONDecoder().scan_once
cdef object decode_base64 = binascii.a2b_base64

cdef Py_ssize_t MOMENT_CHARACTERS = len("2024-05-06T07:08:09")
cdef Py_ssize_t ZONE_CHARACTERS = len("+00:00")
cdef Py_ssize_t FRACTION_DIGITS_MAX = 9


class TornLine(msgspec.Struct, frozen=True):
    """A last line without its end that cannot be read: the write that was cut off."""

    offset: int
    data: bytes


cdef class JsonLines:
    """One pass over a `messages.jsonl`; see the module. Afterwards `torn` may be set."""

    cdef readonly object torn
    cdef object _file
    # The number of the line that was begun last, and where the next one starts.
    cdef int64_t _line
    cdef int64_t _line_at
    cdef int64_t _last_seq

    def __init__(self, file):
        self._file = file

    def batches(self):
        """Yield the messages in order, those of a chunk together.

        Raises CorruptStore, with the line in its reason, for a line that cannot be read.
        """
        # The line that goes on, in pieces: joined once, when its end has come.
        parts = []
        gathered = 0
        read_at = 0
        while chunk := self._file.read_at(read_at, READ_CHUNK_BYTES):
            read_at += len(chunk)
            parts.append(chunk)
            gathered += len(chunk)
            if b"\n" in chunk:
                lines = b"".join(parts).split(b"\n")
                parts = [lines.pop()]
                gathered = len(parts[0])
                yield self._take(lines)
            if gathered > JSON_LINE_BYTES_MAX:
                self._line += 1
                raise self._error("longer than any message can be")
        yield self._take_last(b"".join(parts))

    def _take(self, list lines):
        cdef bytes line
        messages = []
        for line in lines:
            self._line += 1
            if line and not line.isspace():
                try:
                    message = parse_line(line)
                except FormatError as error:
                    raise self._error(error.reason) from error
                if message[0] <= self._last_seq:
                    raise self._error(f"sequence {message[0]} after {self._last_seq}")
                self._last_seq = message[0]
                messages.append(message)
            self._line_at += len(line) + 1
        return messages

    def _take_last(self, line):
        try:
            return self._take([line])
        except CorruptStore:
            self.torn = TornLine(self._line_at, line)
            return []

    def _error(self, reason):
        return CorruptStore(self._file.path, self._line_at, f"line {self._line}: {reason}")


def parse_line(bytes line not None):
    """Read one line as a raw message; raises FormatError."""
    cdef str text
    try:
        text = line.strip().decode("utf-8")
        fields, end = scan(text, 0)
    except (ValueError, StopIteration, RecursionError):
        raise FormatError("not JSON") from None
    if end != len(text):
        raise FormatError("more than one JSON value")
    if type(fields) is not dict:
        raise FormatError("not a JSON object")
    return _message(fields)


cdef tuple _message(dict fields):
    seq = _one_of(fields, "sequence", "seq")
    if type(seq) is not int or not 1 <= seq <= SEQ_MAX:
        raise FormatError("its sequence is no number from 1 on")
    cdef bytes subject = _text(fields.get("subject"), "subject")
    if not subject:
        raise FormatError("its subject is empty")
    cdef bytes payload = _payload(_one_of(fields, "payload", "data"))
    cdef bytes headers = _headers(fields.get("headers"))
    check_sizes(len(subject), len(headers), len(payload))
    return seq, _time_ns(_one_of(fields, "timestamp", "time")), subject, headers, payload, 0


cdef object _one_of(dict fields, str name, str other):
    if (name in fields) == (other in fields):
        both = "both" if name in fields else "neither"
        raise FormatError(f"{both} of {name} and {other}")
    return fields[name] if name in fields else fields[other]


cdef bytes _text(object text, str what):
    if type(text) is not str:
        raise FormatError(f"its {what} is no text")
    try:
        return (<str>text).encode("utf-8")
    except UnicodeEncodeError:
        raise FormatError(f"its {what} is no valid text") from None


cdef bytes _payload(object value):
    if value is None:
        return b""
    try:
        return decode_base64(value, strict_mode=True)
    except (ValueError, TypeError):
        raise FormatError("its payload is no base64") from None


cdef bytes _headers(object value):
    if value is None:
        return b""
    if type(value) is not dict:
        return _text(value, "header block")
    if not value:
        return b""
    lines = ["NATS/1.0"]
    for name, values in value.items():
        if not HEADER_NAME.fullmatch(name):
            raise FormatError("a header's name cannot be")
        for each in values if type(values) is list else [values]:
            if type(each) is not str or LINE_ENDS.search(each):
                raise FormatError(f"the value of header {name} is no text of one line")
            lines.append(f"{name}: {each}")
    return _text("\r\n".join([*lines, "", ""]), "header")


cdef object _time_ns(object value):
    cdef str text
    cdef Py_ssize_t zone_at
    if type(value) is int:
        time_ns = value
    elif type(value) is str:
        text = value
        zone_at = len(text) - (1 if text.endswith(("Z", "z")) else ZONE_CHARACTERS)
        if zone_at < MOMENT_CHARACTERS:
            raise FormatError("its timestamp is not as RFC 3339 has it")
        time_ns = _second(text[:MOMENT_CHARACTERS], text[zone_at:]) * 1_000_000_000
        if zone_at > MOMENT_CHARACTERS:
            time_ns += _fraction_ns(text[MOMENT_CHARACTERS:zone_at])
    else:
        raise FormatError("its timestamp is neither text nor a whole number")
    if not TIME_NS_MIN <= time_ns <= TIME_NS_MAX:
        raise FormatError("its timestamp is out of range")
    return time_ns


cdef int64_t _fraction_ns(str fraction) except -1:
    cdef Py_ssize_t digits = len(fraction) - 1
    cdef Py_ssize_t place
    cdef Py_UCS4 digit
    cdef int64_t value = 0
    if fraction[0] != "." or not 1 <= digits <= FRACTION_DIGITS_MAX:
        raise FormatError("its timestamp is not as RFC 3339 has it")
    for place in range(FRACTION_DIGITS_MAX):
        digit = fraction[place + 1] if place < digits else u"0"
        if not u"0" <= digit <= u"9":
            raise FormatError("its timestamp is not as RFC 3339 has it")
        value = value * 10 + (<int64_t>digit - 48)
    return value


@lru_cache(maxsize=1024)
def _second(moment, zone):
    # Neighbours share their second more often than not.
    if not MOMENT.fullmatch(moment + zone):
        raise FormatError("its timestamp is not as RFC 3339 has it")
    try:
        return (datetime.fromisoformat((moment + zone).upper()) - EPOCH) // SECOND
    except ValueError:
        raise FormatError("its timestamp is no time") from None
