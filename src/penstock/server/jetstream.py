"""JetStream as a part of the server: which accounts have it, recovery, and the API's doors.

Start opens every stream of every account before clients are let in; stop makes all of them durable.
An account has JetStream if its configuration says so, or if there is no account but the global one.
Every account has the API's doors: where it has no JetStream, the answer is that it has none. The
system account never has it.

One thread: the event loop's. While starting, stores are opened by several threads.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from penstock.api.direct import DirectGets
from penstock.api.dispatch import API_PREFIX
from penstock.config.durations import format_duration
from penstock.config.options_jetstream import AccountJetStreamOptions, JetStreamOptions
from penstock.consumer.account import AccountConsumers
from penstock.consumer.keeping import StateKeeper
from penstock.documents.encoding import to_json
from penstock.documents.times import timestamp
from penstock.errors import ApiError, UsageError
from penstock.limits import RECOVERY_THREADS_MAX
from penstock.monitor.pipelines import PipelineReports
from penstock.net.connection import Connection
from penstock.net.memory import share_one_heap, trim_heap
from penstock.routing.sublist import Sublist
from penstock.security.identifiers import UniqueIds
from penstock.server.client_info import client_info
from penstock.server.jetstream_doors import Door
from penstock.server.jetstream_resources import (
    announce,
    batch_room,
    make_resources,
    storage_policy,
)
from penstock.server.origin_links import OriginLinks
from penstock.server.version import NATS_VERSION
from penstock.store.commit_statistics import CommitStatistics
from penstock.store.disk_threads import DoneJobs
from penstock.store.vfs import FileSystem, OsFileSystem
from penstock.stream.account import AccountStreams
from penstock.stream.allowances import (
    AccountLimits,
    ServerLimits,
    TierLimits,
    check_promise,
)
from penstock.stream.config import StorageType

if TYPE_CHECKING:
    from penstock.server.server import Server

TYPE_PREFIX = "io.nats.jetstream."
EVENT_PREFIX = "$JS.EVENT."
LONG_REPLIES = "js_ack_fc_v2"
"""The feature flag for reply subjects that tell of the domain and the account."""


class JetStreamService:
    """All accounts' streams; see the module."""

    version = NATS_VERSION

    def __init__(self, server: Server, options: JetStreamOptions) -> None:
        """Find out what there is; raises UsageError."""
        self._server = server
        self._started_ns = server.clock.monotonic_ns()
        self.log("INF", "Starting JetStream")
        self.options = options
        self.hub = server.hub
        self.clock = server.clock
        self.files: FileSystem = OsFileSystem()
        self.domain = options.domain
        self.strict = options.strict
        self.commits = CommitStatistics()
        self.done_jobs = DoneJobs()
        self.policy = storage_policy(options, self.commits, self.done_jobs)
        self.batch_room = batch_room(options.limits.batch)
        try:
            self.resources = make_resources(options)
            self._links = OriginLinks(options.links, self.log)
        except UsageError as error:
            raise UsageError(f"Can't start JetStream: {error}") from None
        self.accounts: dict[str, AccountStreams] = {}
        self.pipelines = PipelineReports()
        self._doors: dict[str, Door] = {}
        self._direct: dict[str, DirectGets] = {}
        self._keeper = StateKeeper(lambda: self.loop, self.log)
        self._ids = UniqueIds(server.random_bytes)
        self._full: set[str] = set()
        """Streams that have found the disk full, and of which that was told."""

        self._tasks: set[asyncio.Task[None]] = set()
        self._requests: set[asyncio.Task[None]] = set()

    # What streams and handlers ask of their server

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that owns every stream."""
        return self._server.loop

    @property
    def server_name(self) -> str:
        """The server's name."""
        return self._server.name

    def account_tag(self, name: str) -> str:
        """Give what people call an account whose name is a key; "" for any other."""
        found = self._server.identities.accounts.find(name)
        return found.name_tag if found is not None else ""

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
        """What the server has for streams, and what is reserved of it."""
        limits = self.options.limits
        return ServerLimits(
            self.resources.memory_bytes_max,
            self.resources.storage_bytes_max,
            sum(each.bytes_reserved(StorageType.MEMORY) for each in self.accounts.values()),
            sum(each.bytes_reserved(StorageType.FILE) for each in self.accounts.values()),
            duplicate_window_ns_max=limits.duplicate_window_ns,
            ack_pending_max=limits.max_ack_pending,
            request_batch_max=limits.max_request_batch,
            consumers_max=limits.default_max_consumers,
        )

    def bytes_left(self, storage: StorageType) -> int:
        """Tell how much more all streams of a kind may store."""
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
        """Give an id that was never given before."""
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
        """Send something to whoever listens; give to how many."""
        return self.hub.publish(sublist, subject, reply, headers, body)

    def flush(self) -> None:
        """Send now what was published behind an answer."""
        self.hub.flush()

    def advise(self, sublist: Sublist, subject: str, kind: str, fields: Mapping[str, Any]) -> None:
        """Tell whoever listens on `$JS.EVENT.<subject>`; `kind` is the type behind its prefix."""
        self.advise_of(sublist, subject, kind, lambda: fields)

    def advise_of(
        self, sublist: Sublist, subject: str, kind: str, fields: Callable[[], Mapping[str, Any]]
    ) -> None:
        """As `advise`, with fields that are made only if somebody listens."""
        encoded = f"{EVENT_PREFIX}{subject}".encode()
        found = sublist.matches(encoded)
        if not (found.plain or found.queues):
            return
        event = {
            "type": f"{TYPE_PREFIX}{kind}",
            "id": self.unique_id(),
            "timestamp": timestamp(self.now_ns()),
            **fields(),
        }
        if self.domain:
            event["domain"] = self.domain
        self.publish(sublist, encoded, b"", to_json(event))

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Have something done after the answer; the server ends it when it stops."""
        _keep_track(self.loop.create_task(work, name=name), self._tasks)

    def answer_later(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Have a request answered that has to wait; when the server stops, it is waited for."""
        _keep_track(self.loop.create_task(work, name=name), self._requests)

    @property
    def is_full(self) -> bool:
        """Whether as many requests wait as may wait."""
        return len(self._requests) >= self.options.request_queue_limit

    def drop_request(self, subject: str) -> None:
        """Answer a request never, for too many wait; whoever watches the server is told."""
        self.log("WRN", f"JetStream API queue limit reached, dropping a request on {subject}")
        self._advise_watchers("API.LIMIT_REACHED", "api_limit_reached", {"dropped": 1})

    def out_of_storage(self, stream: str) -> None:
        """Tell whoever watches the server that its disk is full: a stream takes no more."""
        if stream not in self._full:
            self._full.add(stream)
            fields = {"server_id": self._server.server_id, "stream": stream, "cluster": ""}
            self._advise_watchers("SERVER.OUT_OF_STORAGE", "server_out_of_space", fields)

    def _advise_watchers(self, subject: str, kind: str, fields: Mapping[str, Any]) -> None:
        system = self._server.identities.accounts.system_account
        if system is not None:
            told = {"server": self.server_name, **fields}
            self.advise(system.sublist, f"ADVISORY.{subject}", f"advisory.v1.{kind}", told)

    # Living

    def start(self) -> None:
        """Open every stream, then answer requests; raises UsageError."""
        if self.resources.is_temporary:
            warning = "Temporary storage directory used, data could be lost on system reboot"
            self.log("WRN", warning)
        announce(self.resources, self.options, lambda line: self.log("INF", line))
        self.loop.add_reader(self.done_jobs.fileno(), self.done_jobs.reap)
        kept = self.files.list_names(self.resources.path)
        if (claimed := self._server.identities.claimed) is not None:
            # Streams go on whether or not anybody of their account comes.
            system = self._server.identities.accounts.system_account
            if system is not None and claimed.jetstream_limits(system.name) is not None:
                raise UsageError("Not allowed to enable JetStream on the system account")
            claimed.load(kept)
        if kept:
            # Whole blocks are read by several threads, and given back below.
            share_one_heap()
        refused = self.serve_accounts()
        if any(account.streams for account in self.accounts.values()):
            trim_heap()
        self._links.start(self.loop)
        took_ns = self.clock.monotonic_ns() - self._started_ns
        self.log("INF", f"Took {format_duration(took_ns)} to start JetStream")
        if refused:
            for name in list(self.accounts):
                self._disable(name)
            what = "Can't start JetStream: Error enabling jetstream on configured accounts"
            raise UsageError(f"{what}: {refused[0]}")

    def take_options(self, options: JetStreamOptions) -> None:
        """Go on with other bounds and accounts; raises UsageError."""
        self.resources = make_resources(options)
        self.options = options
        for reason in self.serve_accounts():
            self.log("ERR", reason)

    def serve_accounts(self) -> list[str]:
        """Give every account what its configuration says, and take away what it says no more.

        Gives the reasons why an account cannot have what it shall have; it stays as it was.
        """
        refused = []
        accounts = self._server.identities.accounts
        for name in [name for name in self._doors if accounts.find(name) is None]:
            self._disable(name)
            self._doors.pop(name).close()
        with ThreadPoolExecutor(RECOVERY_THREADS_MAX, "recovery") as threads:
            for account in accounts:
                reason = self._serve_account(account, threads)
                refused += [reason] if reason else []
        return refused

    def serve_account(self, account: Any) -> None:
        """Give one account what it may have now, and take away what it may not."""
        with ThreadPoolExecutor(RECOVERY_THREADS_MAX, "recovery") as threads:
            reason = self._serve_account(account, threads)
        if reason:
            self.log("ERR", f"Error configuring jetstream for account [{account.name}]: {reason}")

    def _serve_account(self, account: Any, threads: ThreadPoolExecutor) -> str:
        """Serve one account; give the reason why it cannot have what it shall have, or ""."""
        limits = None if account.is_system else self._limits_of(account.name)
        refused = "" if limits is None else self._cannot_promise(account.name, limits)
        if limits is None:
            self._disable(account.name)
        elif not refused and account.name in self.accounts:
            self.accounts[account.name].limits = limits
        elif not refused:
            self._enable(account.name, account.sublist, limits, threads)
        self._serve_door(account, is_enabled=limits is not None)
        return refused

    def _cannot_promise(self, name: str, limits: AccountLimits) -> str:
        """Say why an account cannot have its limits, "" where it can."""
        if not any(map(limits.bytes_promised, StorageType)):
            # Nothing in particular is; it need not be seen what all others were promised.
            return ""
        promised = {each.name: each.limits for each in self.accounts.values()}
        try:
            check_promise(limits, self.limits, promised.values(), kept=promised.get(name))
        except ApiError as error:
            return str(error)
        return ""

    def _serve_door(self, account: Any, *, is_enabled: bool) -> None:
        # An account without streams may have those of another at the same place.
        sharing = self._server.sharing
        is_elsewhere = (
            not is_enabled
            and sharing is not None
            and sharing.asks_elsewhere(account.name, f"{API_PREFIX}INFO")
        )
        if is_elsewhere and account.name in self._doors:
            self._doors.pop(account.name).close()
        elif not is_elsewhere and account.name not in self._doors:
            self._doors[account.name] = Door(self, account)

    def _limits_of(self, name: str) -> AccountLimits | None:
        options, claimed = self._server.options, self._server.identities.claimed
        if claimed is not None and name not in options.accounts:
            return claimed.jetstream_limits(name)
        declared = options.accounts.get(name)
        if declared is not None and declared.jetstream is not None:
            return _limits(declared.jetstream)
        others = options.accounts.keys() - {name, self._server.identities.system_account_name}
        is_alone = name == self._server.identities.accounts.global_account.name and not others
        return AccountLimits() if is_alone else None

    def _enable(
        self, name: str, sublist: Sublist, limits: AccountLimits, threads: ThreadPoolExecutor
    ) -> None:
        path = os.path.join(self.resources.path, name)
        account = AccountStreams(self, name, sublist, path, limits)
        self._direct[name] = DirectGets(self, sublist)
        account.watchers.append(self._direct[name].follow)
        account.feeding.lines = self._links.of_account(name)
        sends_long = self._server.options.feature_flags.get(LONG_REPLIES, False)
        AccountConsumers(account, self._keeper, self.unique_id, sends_long=sends_long)
        self.accounts[name] = account
        for stream in account.recover(threads):
            state, took_ns = stream.store.state(), stream.store.report.duration_ns
            took = format_duration(took_ns // 1_000_000 * 1_000_000)
            which = f"stream '{name} > {stream.name}'"
            self.log("INF", f"  Restored {state.messages:,} messages for {which} in {took}")
        for stream_name, reason in account.offline.items():
            self.log("WRN", f"  Stream '{name} > {stream_name}' is offline: {reason}")

    def _disable(self, name: str) -> None:
        account = self.accounts.pop(name, None)
        if account is not None:
            self._direct.pop(name).close()
            account.stop()

    async def finish_requests(self) -> None:
        """Take no more requests, and answer those that were taken."""
        for door in self._doors.values():
            door.close()
        self._doors.clear()
        while self._requests:
            await asyncio.wait(self._requests)

    def stop(self) -> None:
        """Answer no more, and make everything durable."""
        self.log("INF", "Initiating JetStream Shutdown...")
        self._links.stop()
        for task in self._tasks:
            task.cancel()
        for door in self._doors.values():
            door.close()
        self._doors.clear()
        for name in list(self.accounts):
            self._disable(name)
        self._keeper.stop()
        self.loop.remove_reader(self.done_jobs.fileno())
        self.log("INF", "JetStream Shutdown")

    # Requests

    def client_info(self, account: str, client: Connection | None = None) -> dict[str, Any]:
        """Tell an account who is asking, or who asked before."""
        asking = client or self.hub.publisher
        if not isinstance(asking, Connection):
            return {}
        return client_info(asking, self.server_name, account=account)


def _keep_track(task: asyncio.Task[None], tasks: set[asyncio.Task[None]]) -> None:
    tasks.add(task)
    task.add_done_callback(tasks.discard)


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
