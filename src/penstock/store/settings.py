"""What a store was opened with: its configuration and what it takes from the world.

Invariant: only the configuration ever changes, as a whole and under the store's lock; the stream's
name stays.

Thread: any.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.clock import Clock
from penstock.errors import UsageError, WrongKey
from penstock.format.envelope import Cipher, StoreKey
from penstock.store.interface import StoreConfig


class StoreSettings:
    """The settings of one store; see the module."""

    def __init__(
        self,
        config: StoreConfig,
        *,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
        key: StoreKey | None,
        is_volatile: bool,
    ) -> None:
        self.config = config
        self.clock = clock
        self.random_bytes = random_bytes
        self.key = key
        self.is_volatile = is_volatile
        """The files are memory: nothing is synced, and what is stored is as good as committed."""

    def change(self, config: StoreConfig, path: str) -> None:
        """Go over to another configuration; raise UsageError or WrongKey if that cannot be."""
        if config.name != self.config.name:
            raise UsageError("a stream's name cannot be changed")
        check_key(path, config, self.key)
        self.config = config


def check_key(path: str, config: StoreConfig, key: StoreKey | None) -> None:
    """Raise WrongKey if a configuration asks for a cipher and there is no key."""
    if config.cipher is not Cipher.NONE and key is None:
        raise WrongKey(path, f"the cipher {config.cipher.name} needs a key")
