"""The variables of one run of an action, and texts that hold them.

Values are bytes: a message's body is one, and so is AMPS_BYTE_FF. A variable that is not set is
empty. Source: AMPS User Guide, Configuring AMPS for Automation with Actions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from config_schema.compile.option_values import VARIABLE
from server.base.octets import from_octets, to_octets
from server.subscriptions.envelope import iso_timestamp

RESERVED_PREFIX: Final = "AMPS_"
"""Variables whose names begin like this are set by the instance alone."""

_BYTES: Final = {f"AMPS_BYTE_{number:02X}": bytes([number]) for number in range(256)}


class Context:
    """What is known while an action runs.

    Args:
        instance: the instance's name.
        now: when the run began, in seconds since 1970.
        values: what the event says about itself.
        cause: the event, for the log.
        depth: how many runs of actions led to this one, each by what it did.
    """

    __slots__ = ("_instance", "_now", "_values", "cause", "depth")

    def __init__(
        self,
        instance: str,
        now: float,
        values: Mapping[str, bytes],
        cause: str,
        depth: int = 0,
    ) -> None:
        self._instance = instance
        self._now = now
        self._values = dict(values)
        self.cause = cause
        self.depth = depth

    @property
    def size(self) -> int:
        """The bytes of all values, more or less."""
        return sum(map(len, self._values.values()))

    @property
    def values(self) -> Mapping[str, bytes]:
        """What has been set, by the event and by steps."""
        return self._values

    def __getitem__(self, name: str) -> bytes:
        value = self._values.get(name)
        if value is not None:
            return value
        default = _DEFAULTS.get(name)
        return _BYTES.get(name, b"") if default is None else default(self)

    def __setitem__(self, name: str, value: bytes) -> None:
        self._values[name] = value

    def instance_name(self) -> bytes:
        """AMPS_INSTANCE_NAME."""
        return to_octets(self._instance)

    def datetime(self) -> bytes:
        """AMPS_DATETIME."""
        return to_octets(iso_timestamp(self._now))

    def unix_timestamp(self) -> bytes:
        """AMPS_UNIX_TIMESTAMP."""
        return b"%d" % self._now


_DEFAULTS: Final[Mapping[str, Callable[[Context], bytes]]] = {
    "AMPS_INSTANCE_NAME": Context.instance_name,
    "AMPS_DATETIME": Context.datetime,
    "AMPS_UNIX_TIMESTAMP": Context.unix_timestamp,
}


def byte_of(name: str) -> bytes | None:
    """Return the byte that a variable such as AMPS_BYTE_01 stands for; None for other names."""
    return _BYTES.get(name)


class Template:
    """A text with variables: `{{NAME}}`.

    Attributes:
        parts: pairs of a text and the name of the variable after it.
        tail: the text after the last variable.
    """

    def __init__(self, text: str) -> None:
        pieces = VARIABLE.split(text)
        self.parts = tuple(zip(pieces[:-1:2], pieces[1::2], strict=True))
        self.tail = pieces[-1]

    @property
    def is_variable(self) -> bool:
        """Whether the text is one variable and nothing else."""
        return [before for before, _ in self.parts] == [""] and not self.tail

    def expand(self, context: Context) -> bytes:
        """Replace variables by their values."""
        return self.filled(lambda _, name: context[name])

    def filled(self, value: Callable[[int, str], bytes]) -> bytes:
        """Replace each variable by what `value` returns for its number and its name."""
        pieces: list[bytes] = []
        for number, (text, name) in enumerate(self.parts):
            pieces += (to_octets(text), value(number, name))
        return b"".join([*pieces, to_octets(self.tail)])

    def expand_text(self, context: Context) -> str:
        """The same as a text."""
        return from_octets(self.expand(context))
