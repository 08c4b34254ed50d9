"""Subject mappings: one subject turned into another before a message is routed.

A transform has a source pattern and a destination. In the destination `$1` or `{{wildcard(1)}}`
stands for what the first `*` of the source matched, a last `>` for the rest, and these functions of
wildcards (by number, from 1) for one token or several:

    {{partition(n, w, ...)}}   FNV-1a of the tokens, modulo n; of the whole subject without any
    {{split(w, separator)}}    the token cut at each separator
    {{splitFromLeft(w, k)}}    cut in two after k bytes; splitFromRight counts from the end
    {{sliceFromLeft(w, k)}}    cut into pieces of k bytes; sliceFromRight has the short piece first
    {{left(w, k)}}             its first k bytes; right its last
    {{random(n)}}              a number below n

An account's mappings give each source destinations with weights in percent, for all clusters or
for one by name; what is left of 100 keeps the original subject, unless the source itself is among
the destinations: then it is lost on purpose.

An account that imports subjects of another may call them differently; the first `*` of the name
here stands for what the first `*` there matched, as `$1` does:

    orders.>   there is called   from_a.>       here
    calc.*.*   there is called   sums.$2.$1     here

A single transform is `subject_transform`; here is what accounts make of several.

Invariant: an imported subject has one name here, and that name leads back to it. Errors carry the
reference server's words.

Pure: chance is an argument. `SubjectMappings` belongs to the event loop's thread.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import msgspec

from penstock.errors import UsageError
from penstock.limits import MAPPING_DESTINATIONS_MAX
from penstock.routing.applied_mappings import AppliedMappings, Choices
from penstock.routing.subject_transform import SubjectTransform
from penstock.routing.transform_functions import RandomBelow


class DestinationOptions(Protocol):
    """Where a mapping leads, as a configuration states it."""

    @property
    def subject(self) -> str:
        """The destination of a transform."""
        ...

    @property
    def weight(self) -> int:
        """How many of a hundred messages go there."""
        ...

    @property
    def cluster(self) -> str:
        """The only cluster in which it counts; empty for all that have none of their own."""
        ...


class Destination(msgspec.Struct, frozen=True):
    """Where a mapping leads; see `DestinationOptions`."""

    subject: str
    weight: int = 100
    cluster: str = ""


class _Mapping:
    """One source with the destinations that are good in this server's cluster."""

    __slots__ = ("choices", "destinations", "source")

    def __init__(
        self, source: str, destinations: Sequence[DestinationOptions], cluster: str
    ) -> None:
        _check_weights(destinations)
        self.source = SubjectTransform(source, _as_destination(source))
        self.destinations = tuple(
            Destination(each.subject, each.weight, each.cluster) for each in destinations
        )
        everywhere: list[tuple[int, SubjectTransform]] = []
        here: list[tuple[int, SubjectTransform]] = []
        for each in destinations:
            # Those for other clusters are built, too, so that their errors show everywhere.
            transform = SubjectTransform(source, each.subject)
            if not each.cluster:
                everywhere.append((each.weight, transform))
            elif each.cluster == cluster:
                here.append((each.weight, transform))
        self.choices = self._weighed(here or everywhere)

    def _weighed(
        self, chosen: list[tuple[int, SubjectTransform]]
    ) -> list[tuple[int, SubjectTransform]]:
        """Return each with the sum of the weights up to its own."""
        total = sum(weight for weight, _ in chosen)
        names_source = any(each.subject == self.source.source for each in self.destinations)
        if total != 100 and not names_source:
            chosen = [*chosen, (100 - total, self.source)]
        ends: list[tuple[int, SubjectTransform]] = []
        for weight, transform in chosen:
            ends.append((weight + (ends[-1][0] if ends else 0), transform))
        return ends


class SubjectMappings:
    """The mappings of one account: the first one whose source matches decides; see the module.

    `cluster` is the name of the server's own cluster, or empty. Raises UsageError.
    """

    def __init__(
        self,
        mappings: Mapping[str, Sequence[DestinationOptions]],
        *,
        random_below: RandomBelow,
        cluster: str = "",
    ) -> None:
        self._mappings = {
            source: _Mapping(source, destinations, cluster)
            for source, destinations in mappings.items()
        }
        applied = [Choices(each.source, each.choices) for each in self._mappings.values()]
        self.applied = AppliedMappings(applied, random_below)
        """The same, compiled: what each publish goes through."""

    def __len__(self) -> int:
        return len(self._mappings)

    def describe(self) -> dict[str, tuple[Destination, ...]]:
        """Return the sources with their destinations, as they were declared."""
        return {source: mapping.destinations for source, mapping in self._mappings.items()}

    def map(self, subject: bytes) -> bytes:
        """Return the subject with which a message to `subject` goes on.

        It is empty where the weights say that the message is lost: "" matches nothing.
        """
        return self.applied.map(subject)


def _as_destination(source: str) -> str:
    """Write a source as the destination that changes nothing."""
    tokens = source.split(".")
    count = 0
    for place, token in enumerate(tokens):
        if token == "*":
            count += 1
            tokens[place] = f"${count}"
    return ".".join(tokens)


def _check_weights(destinations: Sequence[DestinationOptions]) -> None:
    if len(destinations) > MAPPING_DESTINATIONS_MAX:
        raise UsageError(f"more than {MAPPING_DESTINATIONS_MAX} destinations")
    seen: set[str] = set()
    totals: dict[str, int] = {}
    for each in destinations:
        if each.subject in seen:
            raise UsageError(f'duplicate entry for "{each.subject}"')
        seen.add(each.subject)
        if not 0 <= each.weight <= 100:
            raise UsageError("individual weights need to be <= 100")
        totals[each.cluster] = totals.get(each.cluster, 0) + each.weight
        if totals[each.cluster] > 100:
            raise UsageError("total weight needs to be <= 100")


_PLACEHOLDER: Final = re.compile(r"\$(\d+)|\{\{\s*wildcard\s*\(\s*(\d+)\s*\)\s*\}\}", re.IGNORECASE)


class ImportNames:
    """The names that imported subjects have here; see the module.

    `there` is the imported pattern, `here` its name, "" for the same. Raises UsageError where one
    does not fit the other.
    """

    def __init__(self, there: str, here: str = "") -> None:
        self.is_same = here in ("", there)
        forward = _numbered(here or there)
        tokens = [_as_wildcard(token) for token in forward]
        self.pattern = ".".join(tokens).encode()
        """What is imported, as it is called here."""

        self._tokens = [token.encode() for token in tokens]
        self.forward = SubjectTransform(there, ".".join(forward), reversible=True)
        """From the name there to the name here."""

        self.backward = SubjectTransform(self.pattern.decode(), _reversed(there, forward))
        """From the name here to the name there."""

    def here(self, subject: bytes) -> bytes:
        """Return the name here of a subject there; a subject that is not imported keeps its own."""
        if self.is_same or not self.forward.selects(subject):
            return subject
        return self.forward.apply(subject, _no_chance)

    def there(self, subject: bytes) -> bytes:
        """Return the name there of an imported subject."""
        return subject if self.is_same else self.backward.apply(subject, _no_chance)

    def overlap(self, pattern: bytes) -> bytes | None:
        """Return the subjects there that a pattern here matches, as a pattern; None for none."""
        tokens = _intersection(pattern.split(b"."), self._tokens)
        return None if tokens is None else self.there(b".".join(tokens))


def _intersection(one: list[bytes], other: list[bytes]) -> list[bytes] | None:
    common: list[bytes] = []
    for place in range(max(len(one), len(other))):
        a = one[place] if place < len(one) else b""
        b = other[place] if place < len(other) else b""
        if not a or not b:
            return None
        if a == b">" or b == b">":
            return common + (other if a == b">" else one)[place:]
        if a != b and b"*" not in (a, b):
            return None
        common.append(b if a == b"*" else a)
    return common


def _numbered(pattern: str) -> list[str]:
    tokens = pattern.split(".")
    count = 0
    for place, token in enumerate(tokens):
        if token == "*":
            count += 1
            tokens[place] = f"${count}"
    return tokens


def _as_wildcard(token: str) -> str:
    return "*" if _PLACEHOLDER.fullmatch(token) else token


def _reversed(there: str, forward: list[str]) -> str:
    """Return `there` with each `*` as the number of the wildcard that stands for it here."""
    found = [match for token in forward if (match := _PLACEHOLDER.fullmatch(token))]
    numbers = {int(match[1] or match[2]): n for n, match in enumerate(found, start=1)}
    tokens = there.split(".")
    count = 0
    for place, token in enumerate(tokens):
        if token == "*":
            count += 1
            if count not in numbers:
                raise UsageError("invalid mapping destination: not using all wildcards")
            tokens[place] = f"${numbers[count]}"
    return ".".join(tokens)


def _no_chance(bound: int) -> int:
    raise AssertionError("a name is not left to chance")
