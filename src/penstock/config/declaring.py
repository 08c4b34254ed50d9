"""How an option is declared: once, as a field of a frozen dataclass.

    max_payload: int = option(
        1 * MIB, keys=("max_payload",), read=integer, reloadable=True,
        doc="Largest message that a client may publish.",
    )

From this one place come the keys of the configuration file, the flags and their help, the default,
what a reload may change, and the reference manual. A block of options is a class that derives from
`Block`; keys that set several options at once are its `shared_keys`.

Knows nothing of particular options. Pure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

if TYPE_CHECKING:
    from penstock.config.parser import Value
    from penstock.config.reading import Notes

Reader = Callable[["Value", "Key", "Notes"], Any]
"""Makes an option's value of a configured value; raises ConfigError if it cannot."""

_INFO: Final = "option"


@dataclasses.dataclass(frozen=True, slots=True)
class Key:
    """The key that a reader reads: as the file spells it, and the first name of the option."""

    spelled: str
    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class OptionInfo:
    """Everything about an option besides its type and default."""

    doc: str
    keys: tuple[str, ...]
    flags: tuple[str, ...]
    read: Reader | None
    reloadable: bool
    zero_is_default: bool
    placeholder: str
    go_name: str
    secret: bool


def option(
    default: Any,
    *,
    doc: str,
    read: Reader | None = None,
    keys: tuple[str, ...] = (),
    flags: tuple[str, ...] = (),
    reloadable: bool = False,
    zero_is_default: bool = False,
    placeholder: str = "",
    go_name: str = "",
    secret: bool = False,
) -> Any:
    """Declare an option.

    `zero_is_default`: nothing (0, "", "0s") means the default. `placeholder` stands for a flag's
    value in the help. `go_name` is what the reference server calls it when a reload is refused.
    A `secret` never shows in a repr.
    """
    info = OptionInfo(
        doc, keys, flags, read, reloadable, zero_is_default, placeholder, go_name, secret
    )
    if isinstance(default, dict):
        return dataclasses.field(
            default_factory=default.copy, repr=not secret, metadata={_INFO: info}
        )
    return dataclasses.field(default=default, repr=not secret, metadata={_INFO: info})


class Block:
    """Options that stand together in one map; each kind is a frozen dataclass of its own."""

    __slots__ = ()

    shared_keys: ClassVar[Mapping[str, Reader]] = {}
    """Keys that set several options: their readers give a dict of field names and values."""

    unknown_text: ClassVar[str] = "unknown field {}"
    """What is said of a key that the block does not have."""

    ignores_variables: ClassVar[bool] = True
    """A key that is there to be referred to need not be an option."""


def fields_of(block: Any) -> tuple[dataclasses.Field[Any], ...]:
    """Give the fields of a block or of its class that are options."""
    return tuple(field for field in dataclasses.fields(block) if _INFO in field.metadata)


def options_of(block: type[Block]) -> dict[str, OptionInfo]:
    """Give a block's options by field name."""
    return {field.name: field.metadata[_INFO] for field in fields_of(block)}


def fields_by_key(block: type[Block]) -> dict[str, str]:
    """Give the field that each key of a block sets."""
    return {key: name for name, info in options_of(block).items() for key in info.keys}
