"""What a monitoring request asks for: query strings, read with the reference server's strictness.

A value that cannot be read raises UsageError, whose text is the answer. Numbers are bounded to 64
bits here, so that nothing behind has to mind huge ones. Pure.
"""

from __future__ import annotations

import re
from urllib.parse import unquote_plus

from penstock.config.quoting import quoted
from penstock.errors import UsageError

INT64_MAX = 2**63 - 1
UINT64_MAX = 2**64 - 1

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_SIGNED = re.compile(r"[+-]?[0-9]+", re.ASCII)
_UNSIGNED = re.compile(r"[0-9]+", re.ASCII)
_STATES = {"open": 0, "closed": 1, "any": 2, "all": 2}


class Query:
    """The parameters of one request; of a repeated one the first counts."""

    def __init__(self, text: str) -> None:
        self._values: dict[str, str] = {}
        for pair in text.split("&"):
            # A pair with a semicolon is dropped, as Go's net/url does.
            if pair and ";" not in pair:
                name, _, value = pair.partition("=")
                self._values.setdefault(unquote_plus(name), unquote_plus(value))

    def text(self, name: str) -> str:
        """Give a parameter; "" where it is not there."""
        return self._values.get(name, "")

    def boolean(self, name: str) -> bool:
        """Give a truth value; False where it is not there."""
        text = self.text(name)
        if not text or text in _FALSE:
            return False
        if text in _TRUE:
            return True
        raise _unreadable("boolean", name, "ParseBool", text, "invalid syntax")

    def integer(self, name: str) -> int:
        """Give a whole number of 64 bits; 0 where it is not there."""
        text = self.text(name)
        if not text:
            return 0
        if not _SIGNED.fullmatch(text):
            raise _unreadable("int", name, "Atoi", text, "invalid syntax")
        if len(text) > 40 or not -INT64_MAX - 1 <= int(text) <= INT64_MAX:
            raise _unreadable("int", name, "Atoi", text, "value out of range")
        return int(text)

    def unsigned(self, name: str) -> int:
        """Give a whole number of 64 bits without a sign; 0 where it is not there."""
        text = self.text(name)
        if not text:
            return 0
        if not _UNSIGNED.fullmatch(text):
            raise _unreadable("uint64", name, "ParseUint", text, "invalid syntax")
        if len(text) > 40 or int(text) > UINT64_MAX:
            raise _unreadable("uint64", name, "ParseUint", text, "value out of range")
        return int(text)

    def state(self) -> int:
        """Give which connections are meant: 0 open ones, 1 closed ones, 2 all."""
        text = self.text("state")
        if not text:
            return 0
        state = _STATES.get(text.lower())
        if state is None:
            raise UsageError(f"Error decoding state for {text}")
        return state

    def subscriptions(self) -> tuple[bool, bool]:
        """Give whether subscriptions are wanted by subject, and whether in detail."""
        if self.text("subs").lower() == "detail":
            return False, True
        return self.boolean("subs"), False


def _unreadable(kind: str, name: str, function: str, text: str, why: str) -> UsageError:
    return UsageError(
        f"Error decoding {kind} for '{name}': strconv.{function}: parsing {quoted(text)}: {why}"
    )
