"""The consumers of all streams of an account, and what they share: journal, folders, interest.

Every stream of an account gets its consumers when it is opened or created.

Thread: the event loop's.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.consumer.folders import ConsumerFolders
from penstock.consumer.journal import ConsumerJournal
from penstock.consumer.registry import StreamConsumers
from penstock.consumer.state_writer import StateWriter
from penstock.routing.interest import InterestWatch
from penstock.stream.account import AccountStreams, StreamAction
from penstock.stream.replication.source import short_hash
from penstock.stream.stream import Stream


class AccountConsumers:
    """The consumers of all streams of one account; see the module."""

    def __init__(
        self,
        account: AccountStreams,
        state_writer: StateWriter,
        unique_id: Callable[[], str],
        *,
        sends_long: bool,
    ) -> None:
        """With `sends_long` reply subjects have the domain and the account."""
        self._account = account
        journal = ConsumerJournal(account.host, account.path)
        self._folders = ConsumerFolders(account.host, journal, state_writer)
        self._recovered = journal.recover()
        self._sends_long = sends_long
        self._keeper = state_writer
        self._unique_id = unique_id
        self._interest = InterestWatch(account.sublist)
        self._long_name = f"{account.host.domain or '_'}.{short_hash(account.name)}"
        account.watchers.append(self.follow)
        account.on_forgotten.append(journal.forget)

    def follow(self, action: StreamAction, stream: Stream) -> None:
        """Attach consumers to a new stream, or apply a new configuration of one."""
        if action is StreamAction.MODIFY:
            stream.consumers.on_config()
        elif action in (StreamAction.OPEN, StreamAction.CREATE):
            consumers = StreamConsumers(
                stream,
                self._keeper,
                self._interest,
                account_name=self._account.name,
                long_name=self._long_name,
                sends_long=self._sends_long,
                unique_id=self._unique_id,
                streams=self._account.streams,
                folders=self._folders,
            )
            journaled = self._recovered.pop((stream.name, stream.created.time_ns), {})
            consumers.recover(journaled)

    def settle(self) -> None:
        """Note that all streams are open: what the journal says of others concerns nobody."""
        offline = self._account.offline
        self._folders.holds_all |= any(name in offline for name, _ in self._recovered)
        self._recovered.clear()
        self._folders.rest()

    def stop(self) -> None:
        """Have all changes on stable storage, after the account's streams were stopped."""
        self._folders.stop()
