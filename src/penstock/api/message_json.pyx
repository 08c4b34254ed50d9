"""A stored message as the answer to a request for it shows it, written from its record.

    {"subject":"orders.eu","seq":7,"hdrs":"…","data":"…","time":"2026-01-02T03:04:05.6Z"}

Headers and payload are in base64, and left out if empty. `documents.StoredMsg` has the same fields.

Pure; any thread.
"""

from libc.stdint cimport uint8_t

from penstock.format.record cimport FLAG_ENVELOPED
from penstock.store.log.block cimport StoredMessage
from penstock.text.json.write cimport Encoded, Writer


def message_json(StoredMessage message not None, bint with_headers):
    """Return the JSON of a message, with its headers or without."""
    cdef Writer out = Writer.__new__(Writer)
    cdef const uint8_t* raw = message.raw
    cdef bytes headers, payload
    out.put(b'{"subject":', 11)
    out.put_text(raw + message.subject_at, message.subject_size)
    out.put(b',"seq":', 7)
    out.put_unsigned(message.seq)
    if message.flags & FLAG_ENVELOPED:
        headers, payload = message.headers, message.payload
        if with_headers:
            _put_part(out, b',"hdrs":', headers, len(headers))
        _put_part(out, b',"data":', payload, len(payload))
    else:
        if with_headers:
            _put_part(out, b',"hdrs":', raw + message.headers_at, message.headers_size)
        _put_part(out, b',"data":', raw + message.payload_at, message.payload_size)
    out.put(b',"time":', 8)
    out.put_instant(message.timestamp_ns)
    out.put_byte(c"}")
    return Encoded(out.take())


cdef int _put_part(Writer out, const char* key, const uint8_t* part, size_t size) except -1:
    if size:
        out.put(key, 8)
        out.put_base64(part, size)
    return 0
