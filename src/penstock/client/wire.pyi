import ssl
from array import array
from dataclasses import dataclass
from typing import final

from penstock.format.columns import ColumnBuilder

@dataclass(frozen=True, slots=True)
class Message:
    subject: bytes
    sid: bytes
    reply: bytes
    headers: bytes
    payload: bytes

@final
class Wire:
    @property
    def pongs(self) -> int: ...
    @property
    def infos(self) -> list[bytes]: ...
    @property
    def errors(self) -> list[bytes]: ...
    def __init__(self, fd: int) -> None: ...
    def secure(self, secured: ssl.SSLSocket) -> None: ...
    def write(self, data: bytes) -> None: ...
    def publish(
        self,
        subject: bytes,
        payload: bytes,
        reply: bytes | None = None,
        headers: bytes | None = None,
    ) -> None: ...
    def publish_many(
        self, subject: bytes, payload: bytes, count: int, reply: bytes | None = None
    ) -> None: ...
    def send(self) -> None: ...
    def next_message(self) -> Message: ...
    def count_messages(self, wanted: int, end_sid: bytes = b"") -> int: ...
    def answer_many(self, end_sid: bytes) -> int: ...
    def request_many(
        self,
        subject: bytes,
        inbox: bytes,
        payload: bytes,
        in_flight: int,
        latencies_ns: array[int],
        spread: int = 0,
    ) -> None: ...
    def collect(
        self, builder: ColumnBuilder, sid: bytes, last_seq: int, rows_max: int, bytes_max: int
    ) -> tuple[Message | None, bool]: ...
    def wait_pong(self, pongs: int) -> list[Message]: ...
    def wait_info(self) -> bytes: ...
