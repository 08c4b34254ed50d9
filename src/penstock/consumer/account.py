"""The consumers of all streams of one account.

Follows the account's streams: each is given its consumers when it is opened or made.

One thread: the event loop's.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.consumer.keeping import StateKeeper
from penstock.consumer.registry import StreamConsumers
from penstock.routing.interest import InterestWatch
from penstock.stream.account import AccountStreams, StreamAction
from penstock.stream.source_marks import short_hash
from penstock.stream.stream import Stream


class AccountConsumers:
    """One account's consumers; see the module."""

    def __init__(
        self,
        account: AccountStreams,
        keeper: StateKeeper,
        unique_id: Callable[[], str],
        *,
        sends_long: bool,
    ) -> None:
        """With `sends_long` the subjects of acknowledgements tell of the domain and the account."""
        self._account = account
        self._sends_long = sends_long
        self._keeper = keeper
        self._unique_id = unique_id
        self._interest = InterestWatch(account.sublist)
        self._long_name = f"{account.host.domain or '_'}.{short_hash(account.name)}"
        account.watchers.append(self.follow)

    def follow(self, action: StreamAction, stream: Stream) -> None:
        """Learn what became of a stream."""
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
            )
            consumers.recover()
