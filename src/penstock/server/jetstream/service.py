"""JetStream as a part of the server: which accounts have it, recovery, and the API.

Start opens every stream of every account before clients are admitted. Stop makes all of them
durable. An account has JetStream if its configuration says so, or if there is no account but the
global one. Every account has the API: without JetStream, the answer is that it is not enabled. The
system account never has JetStream.

Thread: the event loop's. While starting, stores are opened by several threads.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from penstock.api.direct_get import DirectGets
from penstock.api.dispatch import API_PREFIX
from penstock.config.options.jetstream import AccountJetStreamOptions, JetStreamOptions
from penstock.consumer.account import AccountConsumers
from penstock.consumer.state_writer import StateWriter
from penstock.errors import ApiError, UsageError
from penstock.limits import RECOVERY_THREADS_MAX
from penstock.monitor.pipelines import PipelineReports
from penstock.net.connection import Connection
from penstock.net.memory import share_one_heap, trim_heap
from penstock.routing.sublist import Sublist
from penstock.security.identifiers import UniqueIds
from penstock.server.jetstream.api_listener import ApiListener
from penstock.server.jetstream.remote_links import OriginLinks
from penstock.server.jetstream.request_queue import RequestQueue
from penstock.server.jetstream.resources import (
    announce,
    batch_quota,
    make_resources,
    storage_policy,
)
from penstock.server.system.events import client_info
from penstock.server.version import NATS_VERSION
from penstock.store.commit.disk_threads import DoneJobs
from penstock.store.interface import CommitStatistics
from penstock.store.vfs import FileSystem, OsFileSystem
from penstock.stream.account import AccountStreams
from penstock.stream.config.config import StorageType
from penstock.stream.quota import (
    AccountLimits,
    ServerLimits,
    TierLimits,
    check_promise,
)
from penstock.stream.restore_memory import RestoreMemory
from penstock.text.json.codec import to_json
from penstock.text.times import format_duration, timestamp

if TYPE_CHECKING:
    from penstock.server.server import Server

TYPE_PREFIX = "io.nats.jetstream."
EVENT_PREFIX = "$JS.EVENT."
LONG_REPLIES = "js_ack_fc_v2"
"""The feature flag for reply subjects that tell of the domain and the account."""


class JetStreamService:
    """The streams of all accounts; see the module."""

    version = NATS_VERSION

    def __init__(self, server: Server, options: JetStreamOptions) -> None:
        """Find the resources of the machine; raise UsageError."""
        self._server = server
        self._started_ns = server.clock.monotonic_ns()
        self.log("INF", "Starting JetStream")
        self.options = options
        # The event loop that owns every stream.
        self.loop = server.loop
        self.server_name = server.name
        self.hub = server.hub
        self.clock = server.clock
        self.files: FileSystem = OsFileSystem()
        self.domain = options.domain
        self.strict = options.strict
        self.commits = CommitStatistics()
        self.done_jobs = DoneJobs()
        self.policy = storage_policy(options, self.commits, self.done_jobs)
        self.batch_quota = batch_quota(options.limits.batch)
        self.restore_memory = RestoreMemory()
        try:
            self.resources = make_resources(options)
            self._links = OriginLinks(options.links, self.log)
        except UsageError as error:
            raise UsageError(f"Can't start JetStream: {error}") from None
        self.accounts: dict[str, AccountStreams] = {}
        self.pipelines = PipelineReports()
        self._listeners: dict[str, ApiListener] = {}
        self._direct: dict[str, DirectGets] = {}
        self._consumers: dict[str, AccountConsumers] = {}
        self._keeper = StateWriter(lambda: self.loop, self.log)
        self._ids = UniqueIds(server.random_bytes)
        self._full: set[str] = set()
        """Streams that found the disk full and have been reported."""

        self._tasks: set[asyncio.Task[None]] = set()
        self.requests = RequestQueue(self, self._advise_watchers)

    # What streams and handlers ask of their server

    @property
    def payload_bytes_max(self) -> int:
        """The largest message that clients may publish."""
        return self._server.options.max_payload

    @property
    def pending_bytes_max(self) -> int:
        """Most bytes that may wait for one client."""
        return self._server.options.max_pending

    @property
    def limits(self) -> ServerLimits:
        """The server's bounds for streams, and what is reserved of them."""
        return self._server_limits(self.accounts.values())

    def _server_limits(self, accounts: Collection[AccountStreams]) -> ServerLimits:
        limits = self.options.limits
        return ServerLimits(
            self.resources.memory_bytes_max,
            self.resources.storage_bytes_max,
            sum(each.bytes_reserved(StorageType.MEMORY) for each in accounts),
            sum(each.bytes_reserved(StorageType.FILE) for each in accounts),
            duplicate_window_ns_max=limits.duplicate_window_ns,
            ack_pending_max=limits.max_ack_pending,
            request_batch_max=limits.max_request_batch,
            consumers_max=limits.default_max_consumers,
        )

    def bytes_left(self, storage: StorageType) -> int:
        """Return how many more bytes all streams of a storage type may store."""
        resources = self.resources
        is_memory = storage is StorageType.MEMORY
        bytes_max = resources.memory_bytes_max if is_memory else resources.storage_bytes_max
        return bytes_max - sum(each.bytes_used(storage) for each in self.accounts.values())

    def now_ns(self) -> int:
        """The wall clock."""
        return self.clock.now_ns()

    def log(self, level: str, text: str) -> None:
        """Write to the log."""
        self._server.log(level, text)

    def unique_id(self) -> str:
        """Return an id that was never returned before."""
        return self._ids.next()

    def publish(
        self,
        sublist: Sublist,
        subject: bytes,
        headers: bytes,
        body: bytes,
        *,
        reply: bytes | None = None,
    ) -> int:
        """Publish to all subscribers; return how many received it."""
        return self.hub.publish(sublist, subject, reply, headers, body)

    def flush(self) -> None:
        """Send what was published to the sockets now."""
        self.hub.flush()

    def advise(self, sublist: Sublist, subject: str, kind: str, fields: Mapping[str, Any]) -> None:
        """Publish an event on `$JS.EVENT.<subject>`; `kind` is its type without the prefix."""
        encoded = f"{EVENT_PREFIX}{subject}".encode()
        found = sublist.matches(encoded)
        if not (found.plain or found.queues):
            return
        event = {
            "type": f"{TYPE_PREFIX}{kind}",
            "id": self.unique_id(),
            "timestamp": timestamp(self.now_ns()),
            **fields,
        }
        if self.domain:
            event["domain"] = self.domain
        self.publish(sublist, encoded, b"", to_json(event))

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run work in the background; a stopping server cancels it."""
        task = self.loop.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def out_of_storage(self, stream: str) -> None:
        """Publish an advisory in the system account that a stream found the disk full."""
        if stream not in self._full:
            self._full.add(stream)
            fields = {"server_id": self._server.server_id, "stream": stream, "cluster": ""}
            self._advise_watchers("SERVER.OUT_OF_STORAGE", "server_out_of_space", fields)

    def has_storage(self, stream: str) -> None:
        """Note that a stream takes messages again: the next full disk is told of."""
        self._full.discard(stream)

    def _advise_watchers(self, subject: str, kind: str, fields: Mapping[str, Any]) -> None:
        system = self._server.identities.accounts.system_account
        if system is not None:
            told = {"server": self.server_name, **fields}
            self.advise(system.sublist, f"ADVISORY.{subject}", f"advisory.v1.{kind}", told)

    # Living

    def start(self) -> None:
        """Open every stream, then answer requests; raise UsageError, and then nothing is left."""
        try:
            self._start()
        except BaseException:
            self._abandon()
            raise

    def _start(self) -> None:
        if self.resources.is_temporary:
            warning = "Temporary storage directory used, data could be lost on system reboot"
            self.log("WRN", warning)
        announce(self.resources, self.options, lambda line: self.log("INF", line))
        self.loop.add_reader(self.done_jobs.fileno(), self.done_jobs.reap)
        kept = self.files.list_names(self.resources.path)
        if (known := self._server.identities.jwt_accounts) is not None:
            # Streams go on whether or not a client of their account connects.
            system = self._server.identities.accounts.system_account
            if system is not None and known.jetstream_limits(system.name) is not None:
                raise UsageError("Not allowed to enable JetStream on the system account")
            known.load(kept)
        if kept:
            # Whole blocks are read by several threads, and given back below.
            share_one_heap()
        refused = self._open_accounts([])
        self.settle()
        if any(account.streams for account in self.accounts.values()):
            trim_heap()
        self._links.start(self.loop)
        took_ns = self.clock.monotonic_ns() - self._started_ns
        self.log("INF", f"Took {format_duration(took_ns)} to start JetStream")
        if refused:
            what = "Can't start JetStream: Error enabling jetstream on configured accounts"
            raise UsageError(f"{what}: {refused[0]}")

    # Other options: what can fail and can be undone, then the rest

    def change(self, options: JetStreamOptions) -> Callable[[], None]:
        """Use other bounds, and open streams of accounts that may have some now.

        Returns a function that undoes it and does not fail. Raises UsageError if the bounds
        cannot be had, and what opening raises; then nothing has changed. Streams of accounts that
        may have none any more go on until `settle`.
        """
        resources = make_resources(options)
        before = self.options, self.resources
        limits = [(each, each.limits) for each in self.accounts.values()]
        opened: list[str] = []

        def undo() -> None:
            self.options, self.resources = before
            for account, kept in limits:
                account.limits = kept
            for name in opened:
                self._disable(name)

        self.options, self.resources = options, resources
        try:
            refused = self._open_accounts(opened)
        except BaseException:
            undo()
            raise
        for reason in refused:
            self.log("ERR", reason)
        return undo

    def settle(self) -> None:
        """Close the streams of accounts that may have none, and open or close the API of each."""
        accounts = self._server.identities.accounts
        for name in list(self.accounts):
            if accounts.find(name) is None or self._limits_of(name) is None:
                self._disable(name)
        for name in [name for name in self._listeners if accounts.find(name) is None]:
            self._listeners.pop(name).close()
        for account in accounts:
            self._serve_api(account)

    def serve_account(self, account: Any) -> None:
        """Open or close the streams of one account whose claims have changed."""
        with ThreadPoolExecutor(RECOVERY_THREADS_MAX, "recovery") as threads:
            reason = self._open_account(account, threads, [])
        if self._limits_of(account.name) is None:
            self._disable(account.name)
        self._serve_api(account)
        if reason:
            self.log("ERR", f"Error configuring jetstream for account [{account.name}]: {reason}")

    def _open_accounts(self, opened: list[str]) -> list[str]:
        """Open the streams of all accounts that may have some, and note the names of new ones.

        Returns the reasons why an account cannot have what it shall have; it stays as it was.
        """
        with ThreadPoolExecutor(RECOVERY_THREADS_MAX, "recovery") as threads:
            reasons = [
                self._open_account(account, threads, opened)
                for account in self._server.identities.accounts
            ]
        return [reason for reason in reasons if reason]

    def _open_account(self, account: Any, threads: ThreadPoolExecutor, opened: list[str]) -> str:
        limits = self._limits_of(account.name)
        refused = "" if limits is None else self._cannot_promise(account.name, limits)
        if limits is None or refused:
            return refused
        if account.name in self.accounts:
            self.accounts[account.name].limits = limits
        else:
            opened.append(account.name)
            self._enable(account.name, account.sublist, limits, threads)
        return ""

    def _cannot_promise(self, name: str, limits: AccountLimits) -> str:
        """Return why an account cannot have its limits, or "" if it can."""
        if not any(map(limits.bytes_promised, StorageType)):
            # Nothing is promised, so what others were promised does not matter.
            return ""
        # An account that is about to lose its streams gives back what it was promised.
        staying = [
            each for each in self.accounts.values() if self._limits_of(each.name) is not None
        ]
        promised = {each.name: each.limits for each in staying}
        available = self._server_limits(staying)
        try:
            check_promise(limits, available, promised.values(), kept=promised.get(name))
        except ApiError as error:
            return str(error)
        return ""

    def _serve_api(self, account: Any) -> None:
        # An account without streams may import the API of another account.
        imports = self._server.imports
        is_elsewhere = (
            self._limits_of(account.name) is None
            and imports is not None
            and imports.asks_elsewhere(account.name, f"{API_PREFIX}INFO")
        )
        if is_elsewhere and account.name in self._listeners:
            self._listeners.pop(account.name).close()
        elif not is_elsewhere and account.name not in self._listeners:
            self._listeners[account.name] = ApiListener(self, account)

    def _limits_of(self, name: str) -> AccountLimits | None:
        """Return what an account may use of JetStream, or None if it may use nothing."""
        options, claimed = self._server.options, self._server.identities.jwt_accounts
        system = self._server.identities.accounts.system_account
        if system is not None and name == system.name:
            return None
        if claimed is not None and name not in options.accounts:
            return claimed.jetstream_limits(name)
        declared = options.accounts.get(name)
        if declared is not None and declared.jetstream is not None:
            return _limits(declared.jetstream)
        if name != self._server.identities.accounts.global_account.name:
            return None
        others = options.accounts.keys() - {name, self._server.identities.system_account_name}
        return None if others else AccountLimits()

    def _enable(
        self, name: str, sublist: Sublist, limits: AccountLimits, threads: ThreadPoolExecutor
    ) -> None:
        path = os.path.join(self.resources.path, name)
        account = AccountStreams(self, name, sublist, path, limits)
        self._direct[name] = DirectGets(self, sublist)
        account.watchers.append(self._direct[name].follow)
        account.replication.remote_apis = self._links.of_account(name)
        sends_long = self._server.options.feature_flags.get(LONG_REPLIES, False)
        consumers = AccountConsumers(account, self._keeper, self.unique_id, sends_long=sends_long)
        self._consumers[name] = consumers
        self.accounts[name] = account
        for stream in account.recover(threads):
            state, took_ns = stream.store.state(), stream.store.report.duration_ns
            took = format_duration(took_ns // 1_000_000 * 1_000_000)
            which = f"stream '{name} > {stream.name}'"
            self.log("INF", f"  Restored {state.messages:,} messages for {which} in {took}")
        consumers.settle()
        for stream_name, reason in account.offline.items():
            self.log("WRN", f"  Stream '{name} > {stream_name}' is offline: {reason}")

    def _disable(self, name: str) -> None:
        direct, account = self._direct.pop(name, None), self.accounts.pop(name, None)
        consumers = self._consumers.pop(name, None)
        if direct is not None:
            direct.close()
        if consumers is not None:
            consumers.stop()
        if account is not None:
            account.stop()

    async def finish_requests(self) -> None:
        """Take no more requests, and wait until the accepted ones are answered."""
        for listener in self._listeners.values():
            listener.close()
        self._listeners.clear()
        await self.requests.finish()

    def stop(self) -> None:
        """Stop answering, and make everything durable."""
        self.log("INF", "Initiating JetStream Shutdown...")
        self._abandon()
        self.log("INF", "JetStream Shutdown")

    def _abandon(self) -> None:
        self._links.stop()
        for task in self._tasks:
            task.cancel()
        for listener in self._listeners.values():
            listener.close()
        self._listeners.clear()
        for name in list(self.accounts):
            self._disable(name)
        self._keeper.stop()
        self.loop.remove_reader(self.done_jobs.fileno())

    # Requests

    def client_info(self, account: str, client: Connection | None) -> dict[str, Any]:
        """Return what an account may know of a client; {} for None."""
        if client is None:
            return {}
        return client_info(client, self.server_name, account=account)


def _limits(options: AccountJetStreamOptions) -> AccountLimits:
    return AccountLimits(
        {
            "": TierLimits(
                max_memory=options.max_memory,
                max_storage=options.max_file,
                max_streams=options.max_streams,
                max_consumers=options.max_consumers,
                max_ack_pending=options.max_ack_pending,
                memory_max_stream_bytes=options.memory_max_stream_bytes,
                storage_max_stream_bytes=options.file_max_stream_bytes,
                max_bytes_required=options.max_bytes_required,
            )
        }
    )
