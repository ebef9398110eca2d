"""Values that several sections of an instance's description share."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from config_schema.problems import Location
from config_schema.units import parse_bool

FILE_MODE: Final = 0o640
"""Permissions of the files that an instance makes, also of those without messages: logs have users,
addresses and values in filters. Only the owner and the group may read them; the umask can take away
more, and a lax one opens nothing."""

DIRECTORY_MODE: Final = 0o750
"""Of directories that are made for files which a configuration names."""


@dataclass(frozen=True, slots=True)
class InetAddr:
    """An address to listen on or to connect to.

    `host` is None for every address of this machine. `family` is "any" (IPv4 and IPv6 where the
    machine has both), or as the notation implies: 0.0.0.0 is "ipv4", [::] is "ipv6".
    """

    host: str | None
    port: int
    family: Literal["any", "ipv4", "ipv6"]
    location: Location

    def __str__(self) -> str:
        """Show it as the configuration writes it."""
        if self.host is None:
            return str(self.port)
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Option:
    """One element of an Options block, as a module receives it; `children` if it is nested."""

    name: str
    value: str
    children: tuple["Option", ...]
    location: Location

    @property
    def meaning(self) -> Hashable:
        """A value that is equal for options that say the same, wherever they are written."""
        return self.name, self.value, tuple(child.meaning for child in self.children)


@dataclass(frozen=True, slots=True)
class Options:
    """The content of an Options element: ordered, and any name may repeat."""

    items: tuple[Option, ...] = ()

    def __iter__(self) -> Iterator[Option]:
        """Return the options in file order."""
        return iter(self.items)

    def get(self, name: str) -> str | None:
        """Return the value of the first option called `name`, None when there is none."""
        return next((option.value for option in self.items if option.name == name), None)

    def flag(self, name: str, *, default: bool) -> bool:
        """Return the value of a switch, `default` when there is none of this name.

        Raises:
            UnitError: it is none of the words for true and false.
        """
        text = self.get(name)
        return default if text is None else parse_bool(text)

    @property
    def meaning(self) -> Hashable:
        """See `Option.meaning`."""
        return tuple(option.meaning for option in self.items)

    def all(self, name: str) -> tuple[str, ...]:
        """Return the values of every option called `name`, in file order."""
        return tuple(option.value for option in self.items if option.name == name)


@dataclass(frozen=True, slots=True)
class ModuleUse:
    """The use of a module at one place: its name and its options there."""

    module: str
    options: Options
    location: Location

    @property
    def meaning(self) -> Hashable:
        """See `Option.meaning`."""
        return self.module, self.options.meaning


@dataclass(frozen=True, slots=True)
class TopicRef:
    """A topic as the configuration refers to it: topics are told apart by name and message type."""

    name: str
    message_type: str

    def __str__(self) -> str:
        """Show it as the configuration may write it."""
        return f"[{self.message_type}].[{self.name}]"


@dataclass(frozen=True, slots=True)
class SlowClientLimits:
    """Limits of unread messages; None stands for the enclosing level's value.

    Sizes are bytes, the age is nanoseconds, the capacity a percentage of the whole limit.
    Source: AMPS User Guide, Slow Client Management and Capacity Limits.
    """

    message_memory_limit: int | None
    message_disk_limit: int | None
    message_disk_path: str | None
    client_message_age_limit: int | None
    client_max_capacity: int | None


@dataclass(frozen=True, slots=True)
class TlsSpec:
    """TLS settings of a listening or an outgoing connection; file contents are read later."""

    certificate: str | None
    private_key: str | None
    ciphers: str | None
    protocols: tuple[str, ...]
    verify_client: bool
    ca_file: str | None
    ca_path: str | None
