"""A connection's socket: reading, sending and ending, with or without filters such as TLS.

Without filters the compiled link reads and writes the socket itself. With them, bytes come and go
through each filter in turn, and wait in a second outbox for the socket. The same bounds hold in
both cases.

Invariants: once `close` ran there is no reader, writer or timer of the connection left, and
`on_closed` was called exactly once. An unexpected error ends this connection and no other.

One thread: the event loop's. `net.connection` stands on it, `net.opening` begins it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable

from penstock.limits import FILTERED_READ_BYTES_MAX, PRODUCER_STALL_S
from penstock.net.host import ClosedReason, Host
from penstock.net.link import Link
from penstock.net.protocol_log import Tracer
from penstock.net.tls import Filter, FilterFailed, TlsFilter, TlsHandshakeFailed
from penstock.routing.outbox import Outbox
from penstock.text.times import format_duration


class Channel(Link):
    """The socket of a connection; see the module."""

    def __init__(self, host: Host, sock: socket.socket, filters: list[Filter] | None) -> None:
        """Raise OSError if the client is gone already."""
        super().__init__(host.hub, sock.fileno() if not filters else -1)
        self.host = host
        self.sock = sock
        self.filters: list[Filter] = filters or []
        self.tracer: Tracer | None = None
        self.stalls = 0
        peer = sock.getpeername()
        self.ip: str = _plain_ip(peer[0]) if isinstance(peer, tuple) else ""
        self.port: int = peer[1] if isinstance(peer, tuple) else 0
        self.close_reason: ClosedReason | None = None
        self.stop_ns = 0
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._wire = Outbox()
        self._socket_fd = sock.fileno()
        self._reading = False
        self._resting = False
        self._stalled = False
        self._when_ready: Callable[[], None] | None = None

    # Hooks, which `net.connection` overrides

    def on_secured(self, tls: TlsFilter) -> str:
        """Return a reason to end the connection after TLS's handshake, or ""."""
        return ""

    def on_closed(self, reason: ClosedReason) -> None:
        """The connection is closed; called once."""

    # Reading

    def hold(self) -> None:
        """Read and parse nothing more, while the client is being authenticated."""
        self._resting = False
        self.held = True
        self.pause_reading()

    @property
    def is_on_hold(self) -> bool:
        """True while the client is being authenticated."""
        return self.held and not self._resting

    def proceed(self) -> None:
        """Go on after `hold` with what has come since."""
        if not self.closed:
            self.release()
            self._take_more()
            self.resume_reading()
            self._end_if_told()

    def on_long_turn(self) -> None:
        """Let others have their turn before the rest of what this client asks for."""
        if not self.held:
            self.rest()
            self.host.loop.call_soon(self.go_on)

    def rest(self) -> None:
        """Read and parse nothing more until `go_on`: the client's last request takes its time."""
        self.hold()
        self._resting = True

    def go_on(self) -> None:
        """Go on after `rest`, with what has come since."""
        # It may be held for another reason by now, and for longer.
        if self._resting:
            self._resting = False
            self._guarded(self.proceed)

    def resume_reading(self) -> None:
        """Read whenever the socket has something."""
        if not (self.closed or self._reading or self.held or self._stalled):
            self._reading = True
            reader = self._on_plain if self.fd >= 0 else self._on_filtered
            self.host.loop.add_reader(self._socket_fd, reader)

    def pause_reading(self) -> None:
        """Read no more for now."""
        if self._reading:
            self._reading = False
            self.host.loop.remove_reader(self._socket_fd)

    def when_readable(self, action: Callable[[], None]) -> None:
        """Call `action` when the first bytes are there, and leave them in the socket."""
        if not self.closed:
            self._reading = True
            self.host.loop.add_reader(self._socket_fd, action)

    def when_ready(self, action: Callable[[], None]) -> None:
        """Begin to read, and call `action` when the handshakes of all filters are done."""
        self._when_ready = action
        self.resume_reading()

    def upgrade(self, tls: TlsFilter, then: Callable[[], None]) -> None:
        """Go on under TLS, and call `then` when its handshake is done.

        What was sent so far went in the clear.
        """
        self.pause_reading()
        self.filters = [tls, *self.filters]
        self._when_ready = then
        self.fd = -1
        self.resume_reading()

    def set_tracing(self, is_on: bool) -> None:
        """Log every operation from now on, or no longer."""
        if self.closed or is_on == (self.tracer is not None):
            return
        self.tracer = Tracer(self) if is_on else None
        if self.filters:
            return
        if is_on:
            # What waits may begin in the middle of an operation; it is sent without being logged.
            self.fd = -1
            self._send_wire(self.out.take())
        elif not self.blocked:
            self.fd = self._socket_fd
        # While a connection opens, `net.opening` reads what comes.
        if self._reading and not {"tls", "proxy"} & self._timers.keys():
            self.pause_reading()
            self.resume_reading()

    def _on_plain(self) -> None:
        self._guarded(self.on_readable)

    def _on_filtered(self) -> None:
        self._guarded(self._read_filtered)

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001 - a connection is an edge: it ends alone
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self.host.log("ERR", f"{self} - Internal error: {type(error).__name__}: {error}")
        self.close(ClosedReason.READ_ERROR)

    def _read_filtered(self) -> None:
        try:
            data = self.sock.recv(FILTERED_READ_BYTES_MAX)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close(ClosedReason.READ_ERROR)
            return
        if data:
            self._pass_in(data)
            self._end_if_told()
        elif any(isinstance(each, TlsFilter) and not each.ready for each in self.filters):
            self._filter_failed(TlsHandshakeFailed("EOF"), 0)
        else:
            self.close(ClosedReason.CLIENT_CLOSED)

    def _end_if_told(self) -> None:
        # A client that ends TLS keeps the socket open until the server ends it, too.
        told = any(isinstance(each, TlsFilter) and each.ended for each in self.filters)
        if told and not self.closed and not self.held:
            self.close(ClosedReason.CLIENT_CLOSED)

    def _take_more(self) -> None:
        # Go on with what a filter has left for a turn of its own, once the link is free for it.
        for place, each in enumerate(self.filters):
            if each.has_more and not (self.held or self.closed or self._stalled):
                self._pass_in(b"", place)

    def _rest_if_more(self) -> None:
        if not self.closed and any(each.has_more for each in self.filters):
            self.on_long_turn()

    def _pass_in(self, data: bytes, first: int = 0) -> None:
        """Pass bytes through the filters, from the first one on, to the protocol."""
        self._filter(data, first)
        self._rest_if_more()

    def _filter(self, data: bytes, first: int) -> None:
        place, filters = first, self.filters
        try:
            for place in range(first, len(filters)):
                each = filters[place]
                was_ready = each.ready
                data, answer = each.incoming(data)
                if answer:
                    self._send_through(answer, place)
                if each.ready and not was_ready:
                    self._on_ready(each)
                if not data or self.closed:
                    return
        except FilterFailed as error:
            if error.before:
                self._hand_over(error.before)
            if not self.closed:
                self._filter_failed(error, place)
            return
        self._hand_over(data)

    def _hand_over(self, data: bytes) -> None:
        if self.tracer is None:
            self.feed(data)
            return
        for part in self.tracer.incoming(data):
            self.feed(part)
            if self.closed:
                return

    def _on_ready(self, ready: Filter) -> None:
        if isinstance(ready, TlsFilter):
            refusal = self.on_secured(ready)
            if refusal:
                if ready.tls.session_reused:
                    # The client may come again, and must then show a certificate.
                    ready.disown()
                raise TlsHandshakeFailed(refusal)
        if all(each.ready for each in self.filters):
            then, self._when_ready = self._when_ready, None
            if then is not None:
                then()
            self.drain()

    def _filter_failed(self, error: FilterFailed, place: int) -> None:
        self.host.log(error.level, f"{self} - {error}")
        if error.farewell:
            # What waits was meant to come before it.
            self.drain()
            self._send_through(error.farewell, place)
        self.close(error.closed)

    # Sending

    def drain(self) -> None:
        """Send what waits, through the filters."""
        if len(self.out) and all(each.ready for each in self.filters):
            data = self.out.take()
            if self.tracer is not None:
                self.tracer.outgoing(data)
            self._send_through(data, len(self.filters))

    def _send_through(self, data: bytes, place: int) -> None:
        for each in reversed(self.filters[:place]):
            data = each.outgoing(data)
        self._send_wire(data)

    def _send_wire(self, data: bytes) -> None:
        if self.closed:
            # The socket's number may be another connection's by now.
            return
        if len(self._wire) + len(data) > self.max_pending:
            self.on_slow()
        elif self.blocked:
            self._wire.append(data)
        else:
            self._note_sent(self._wire.send_behind(self._socket_fd, data))

    def _send_rest(self) -> None:
        self._note_sent(self._wire.send_to(self._socket_fd))

    def _note_sent(self, left: int) -> None:
        if left < 0:
            self.close(ClosedReason.WRITE_ERROR)
        elif left > 0 and not self.blocked:
            self.blocked = True
            self.on_blocked()

    def on_blocked(self) -> None:
        """Send the rest when the socket takes more; give up after the write deadline."""
        self.host.loop.add_writer(self._socket_fd, self._on_writable)
        self.set_timer("write", self.host.limits.write_deadline_ns / 1e9, self._write_timed_out)

    def _on_writable(self) -> None:
        if self.fd >= 0:
            done = self.send_waiting()
        else:
            self.blocked = False
            self._send_rest()
            if not self.blocked and not self.closed:
                # What came while the socket was full is still to go through the filters.
                self.drain()
            done = not self.blocked
        if self.closed:
            return
        if done:
            self.host.loop.remove_writer(self._socket_fd)
            self.cancel_timer("write")
            self.hub.flush()
        else:
            self.set_timer("write", self.host.limits.write_deadline_ns / 1e9, self._write_timed_out)

    def _write_timed_out(self) -> None:
        deadline = format_duration(self.host.limits.write_deadline_ns)
        waiting = len(self.out) + len(self._wire)
        self.host.log(
            "INF",
            f"{self} - Slow Consumer Detected: WriteDeadline of {deadline} exceeded"
            f" with 1 chunks of {waiting} total bytes.",
        )
        self.close(ClosedReason.SLOW_WRITE_DEADLINE)

    def on_slow(self) -> None:
        """Cut off a receiver that fell too far behind."""
        self.host.log(
            "INF", f"{self} - Slow Consumer Detected: MaxPending of {self.max_pending} Exceeded"
        )
        self.close(ClosedReason.SLOW_PENDING_BYTES)

    def trim(self) -> None:
        """Free the memory of empty buffers: most connections are idle."""
        for buffer in (self.out, self._wire):
            if not len(buffer):
                buffer.clear()

    def on_stall(self) -> None:
        """Read no more of this producer for a moment, so that its receivers can catch up."""
        if not self.host.limits.no_fast_producer_stall:
            self.stalls += 1
            self.host.stalls += 1
            self.pause_reading()
            self._stalled = True
            self.set_timer("stall", PRODUCER_STALL_S, self._end_stall)

    def _end_stall(self) -> None:
        self._stalled = False
        self._guarded(self._take_more)
        self.resume_reading()

    # Ending

    def on_lost(self) -> None:
        """Close: the client closed its side, or the connection broke."""
        self.close(ClosedReason.CLIENT_CLOSED)

    def close(self, reason: ClosedReason) -> None:
        """Send what can be sent at once, and free everything; closing twice does nothing."""
        if self.close_reason is not None:
            return
        self.close_reason = reason
        self.stop_ns = self.host.clock.now_ns()
        with contextlib.suppress(OSError, FilterFailed, ValueError):
            self._say_goodbye(reason)
        self.closed = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self.host.loop.remove_reader(self._socket_fd)
        self.host.loop.remove_writer(self._socket_fd)
        self.sock.close()
        self.host.freed_memory.note(self.let_go())
        self._wire.clear()
        # Of what is closed only a record stays; TLS's memory goes now.
        self.filters = []
        self.on_closed(reason)

    def _say_goodbye(self, reason: ClosedReason) -> None:
        if self.slow or self.blocked:
            return
        if self.fd >= 0:
            self.out.send_to(self.fd)
            return
        self.drain()
        for place in range(len(self.filters) - 1, -1, -1):
            if self.filters[place].ready:
                self._send_through(self.filters[place].farewell(reason), place)

    # Timers

    def set_timer(self, name: str, delay_s: float, action: Callable[[], None]) -> None:
        """Call `action` later, instead of what was planned under this name."""
        self.cancel_timer(name)
        if not self.closed:
            self._timers[name] = self.host.loop.call_later(delay_s, action)

    def cancel_timer(self, name: str) -> None:
        """Cancel what was planned under this name."""
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()


def _plain_ip(ip: str) -> str:
    """Return an IPv4 address without the prefix that an IPv6 socket adds."""
    return ip.removeprefix("::ffff:") if "." in ip else ip
