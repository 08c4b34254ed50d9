"""The configurations of an account's streams, with their sums and an index of their subjects.

A request is checked against all streams of its account. What it needs of them is kept up to date
here, so that a request costs the same whether there are ten streams or ten thousand.

Invariants: the sums are those of the configurations that are held. A subject leads to every stream
that listens to it, and an account's own rules let there be only one.

Pure; one thread. The account changes it, the rules of this package read it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from penstock.stream.config.config import StorageType, StreamConfig
from penstock.stream.config.subjects import check_pairs

_ANY = b"*"
_REST = b">"


class _Branch:
    """The subjects that begin with the same tokens."""

    __slots__ = ("branches", "owners")

    def __init__(self) -> None:
        self.branches: dict[bytes, _Branch] = {}
        self.owners: list[str] = []
        """The streams with the subject that ends here."""


class SubjectTree:
    """Who listens to which subjects; answers whether a subject can meet another's."""

    def __init__(self) -> None:
        self._root = _Branch()

    def add(self, subject: str, owner: str) -> None:
        """Note that a stream listens to a subject."""
        branch = self._root
        for token in subject.encode().split(b"."):
            branch = branch.branches.setdefault(token, _Branch())
        branch.owners.append(owner)

    def remove(self, subject: str, owner: str) -> None:
        """Forget that a stream listens to a subject, which was added."""
        path = [self._root]
        tokens = subject.encode().split(b".")
        for token in tokens:
            path.append(path[-1].branches[token])
        path[-1].owners.remove(owner)
        for token, above, branch in reversed(list(zip(tokens, path, path[1:], strict=False))):
            if branch.owners or branch.branches:
                break
            del above.branches[token]

    def is_met(self, subject: str, *, besides: str) -> bool:
        """Return True if a stream other than `besides` listens to what a subject can match.

        Raise ApiError if that would take too long.
        """
        tokens = subject.encode().split(b".")
        # Each branch is reached by one way only, so none is looked at twice.
        waiting = [(self._root, 0)]
        looked_at = 0
        while waiting:
            looked_at += 1
            check_pairs(looked_at)
            branch, place = waiting.pop()
            if place >= len(tokens):
                if any(owner != besides for owner in branch.owners):
                    return True
                if tokens[-1] == _REST:
                    waiting += [(each, place) for each in branch.branches.values()]
                continue
            rest = branch.branches.get(_REST)
            if rest is not None and any(owner != besides for owner in rest.owners):
                return True
            token = tokens[place]
            if token in (_ANY, _REST):
                waiting += [(each, place + 1) for each in branch.branches.values()]
                continue
            for key in (token, _ANY):
                if (following := branch.branches.get(key)) is not None:
                    waiting.append((following, place + 1))
        return False


class _Sum:
    """How many streams there are of a kind, and what they have reserved, each copy once."""

    __slots__ = ("count", "reserved_bytes")

    def __init__(self) -> None:
        self.count = 0
        self.reserved_bytes = 0


class KnownStreams(Mapping[str, StreamConfig]):
    """Configurations by name; see the module."""

    def __init__(self, configs: Iterable[StreamConfig] = ()) -> None:
        self._configs: dict[str, StreamConfig] = {}
        self._sums: defaultdict[tuple[StorageType, int], _Sum] = defaultdict(_Sum)
        self._subjects = SubjectTree()
        for config in configs:
            self.put(config)

    def __getitem__(self, name: str) -> StreamConfig:
        return self._configs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._configs)

    def __len__(self) -> int:
        return len(self._configs)

    def put(self, config: StreamConfig) -> None:
        """Add a configuration, or replace the one with its name."""
        if config.name in self._configs:
            self.drop(config.name)
        self._configs[config.name] = config
        self._count(config, 1)
        for subject in config.subjects:
            self._subjects.add(subject, config.name)

    def drop(self, name: str) -> None:
        """Remove a configuration, which is there."""
        config = self._configs.pop(name)
        self._count(config, -1)
        for subject in config.subjects:
            self._subjects.remove(subject, name)

    def _count(self, config: StreamConfig, step: int) -> None:
        total = self._sums[config.storage, max(config.num_replicas, 1)]
        total.count += step
        total.reserved_bytes += step * max(config.max_bytes, 0)

    def count(self, *, replicas: int = 0) -> int:
        """Return how many streams there are, or how many with a number of replicas."""
        return sum(each.count for (_, own), each in self._sums.items() if replicas in (0, own))

    def reserved_bytes(self, storage: StorageType) -> int:
        """Return the sum of `max_bytes` of all streams of a kind of storage."""
        return sum(each.reserved_bytes for (kind, _), each in self._sums.items() if kind is storage)

    def reserved_by_replicas(self, storage: StorageType) -> Iterator[tuple[int, int]]:
        """Yield each number of replicas with what streams of a kind of storage reserve once."""
        for (kind, replicas), each in self._sums.items():
            if kind is storage:
                yield replicas, each.reserved_bytes

    def overlaps(self, config: StreamConfig) -> bool:
        """Return True if another stream listens to one of a stream's subjects; raise ApiError."""
        name = config.name
        return any(self._subjects.is_met(each, besides=name) for each in config.subjects)
