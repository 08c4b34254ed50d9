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

import msgspec

if TYPE_CHECKING:
    from dataclasses import dataclass as options_block

    from penstock.config.language.parser import Value
    from penstock.config.options.values import Notes
else:

    def options_block(*, frozen: bool) -> Callable[[type], type]:
        """Make a kind of block of a class: a frozen dataclass whose methods are `Block`'s."""
        assert frozen
        return dataclasses.dataclass(init=False, repr=False, eq=False, match_args=False, slots=True)


__all__ = [
    "Block", "Key", "OptionInfo", "Reader", "fields_by_key", "fields_of", "option",
    "options_block", "options_of",
]  # fmt: skip

Reader = Callable[["Value", "Key", "Notes"], Any]
"""Returns an option's value for a configured value; raises ConfigError if it cannot."""

_INFO: Final = "option"


class Key(msgspec.Struct, frozen=True):
    """The key that a reader reads: as the file spells it, and the first name of the option."""

    spelled: str
    name: str


class OptionInfo(msgspec.Struct, frozen=True):
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
    """Options that stand together in one map; each kind is a frozen dataclass of its own.

    What a dataclass would have written for each kind is here once, for all: a server has thirty
    kinds, and writing it for each of them would be a good part of the time that it takes to start.
    """

    __slots__ = ()

    def __init__(self, *values: Any, **named: Any) -> None:
        fields = dataclasses.fields(self)  # type: ignore[arg-type]  # every kind is a dataclass
        if len(values) > len(fields):
            raise TypeError(f"{type(self).__name__} has {len(fields)} options, not {len(values)}")
        for field, value in zip(fields, values, strict=False):
            if named.setdefault(field.name, value) is not value:
                raise TypeError(f"{type(self).__name__}: {field.name} is given twice")
        for field in fields:
            default = field.default
            if default is dataclasses.MISSING and field.name not in named:
                assert field.default_factory is not dataclasses.MISSING
                default = field.default_factory()
            object.__setattr__(self, field.name, named.pop(field.name, default))
        if named:
            raise TypeError(f"{type(self).__name__} has no option {next(iter(named))!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot change {name!r}")

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot remove {name!r}")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        shown = (f"{each.name}={getattr(self, each.name)!r}" for each in fields if each.repr)
        return f"{type(self).__name__}({', '.join(shown)})"

    def _values(self) -> tuple[Any, ...]:
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        return tuple(getattr(self, each.name) for each in fields)

    shared_keys: ClassVar[Mapping[str, Reader]] = {}
    """Keys that set several options: their readers give a dict of field names and values."""

    unknown_text: ClassVar[str] = "unknown field {}"
    """What is said of a key that the block does not have."""

    ignores_variables: ClassVar[bool] = True
    """A key that is there to be referred to need not be an option."""


def fields_of(block: Any) -> tuple[dataclasses.Field[Any], ...]:
    """Return the fields of a block or of its class that are options."""
    return tuple(field for field in dataclasses.fields(block) if _INFO in field.metadata)


def options_of(block: type[Block]) -> dict[str, OptionInfo]:
    """Return a block's options by field name."""
    return {field.name: field.metadata[_INFO] for field in fields_of(block)}


def fields_by_key(block: type[Block]) -> dict[str, str]:
    """Return the field that each key of a block sets."""
    return {key: name for name, info in options_of(block).items() for key in info.keys}
