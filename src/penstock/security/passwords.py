"""Passwords and tokens as a configuration holds them: plain, or as a bcrypt hash.

What always holds: a secret never shows in a repr or an error, and a comparison takes the same time
wherever the two differ. Verifying a bcrypt hash takes a tenth of a second or more of pure work, by
design, with the interpreter's lock released: `is_slow` says so beforehand.

Pure; any thread.
"""

from __future__ import annotations

import hmac
import re

from penstock.errors import UsageError
from penstock.limits import BCRYPT_COST_MAX, PASSWORD_BYTES_MAX

_BCRYPT = re.compile(r"\$2[abxy]\$(\d{2})\$")

# What bcrypt itself looks at; its library refuses longer ones instead of cutting them.
_BCRYPT_BYTES = 72

# "$2b$", two digits of cost, "$", 22 characters of salt; 31 characters of hash follow.
_BCRYPT_SALT_CHARACTERS = 29


def is_bcrypt(text: str) -> bool:
    """Tell whether a configured secret is a bcrypt hash."""
    return _BCRYPT.match(text) is not None


class Secret:
    """A configured password or token.

    Raises UsageError for a bcrypt hash whose cost is beyond BCRYPT_COST_MAX.
    """

    __slots__ = ("_bcrypt", "_text")

    def __init__(self, text: str) -> None:
        self._text = _encoded(text)
        self._bcrypt = b""
        if found := _BCRYPT.match(text):
            if int(found[1]) > BCRYPT_COST_MAX:
                raise UsageError(
                    f"a bcrypt cost of {found[1]} is too high, {BCRYPT_COST_MAX} is the most"
                )
            # The letter tells which bug its maker had; all are computed in the one right way.
            self._bcrypt = b"$2b" + self._text[3:]

    def __repr__(self) -> str:
        return "Secret(<hidden>)"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._text, other._text)

    def __hash__(self) -> int:
        return hash(self._text)

    @property
    def is_empty(self) -> bool:
        """Tell whether there is nothing to know."""
        return not self._text

    @property
    def is_slow(self) -> bool:
        """Tell whether verifying takes long: call it where that hurts nobody."""
        return bool(self._bcrypt)

    def verify(self, candidate: str) -> bool:
        """Tell whether `candidate` is the password."""
        given = _encoded(candidate)
        if len(given) > PASSWORD_BYTES_MAX:
            return False
        if not self._bcrypt:
            return hmac.compare_digest(self._text, given)
        # A server whose passwords are plain, or that has none, starts without loading it.
        import bcrypt

        try:
            computed = bcrypt.hashpw(given[:_BCRYPT_BYTES], self._bcrypt[:_BCRYPT_SALT_CHARACTERS])
        except ValueError:
            # Not a hash after all, or bytes that the library will not take.
            return False
        return hmac.compare_digest(computed, self._bcrypt)

    def verify_itself(self) -> bool:
        """Verify its own text, as for `no_auth_user`.

        A hash is not its own password, so this fails for one: so it does in the reference server.
        """
        return not self._bcrypt


def _encoded(text: str) -> bytes:
    # JSON can carry halves of surrogate pairs; they must neither raise nor equal anything.
    return text.encode("utf-8", "surrogatepass")
