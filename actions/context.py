"""The variables of one run of an action, and texts that contain them.

Values are bytes: a message's body is one, and so is AMPS_BYTE_FF. A variable that is not set is
empty. Source: AMPS User Guide, Configuring AMPS for Automation with Actions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from config_schema.compile.option_values import VARIABLE
from server.topics.subscriptions.delivery.envelope import iso_timestamp
from server.util.encoding import bytes_to_text, text_to_bytes

RESERVED_PREFIX: Final = "AMPS_"
"""Only the instance sets variables whose names begin with this prefix."""

_BYTES: Final = {f"AMPS_BYTE_{number:02X}": bytes([number]) for number in range(256)}


class ActionContext:
    """The context variables of one run of an action.

    Args:
        instance: the instance's name.
        now: the start of the run, in seconds since 1970.
        values: the variables of the event.
        cause: the event, for the log.
        depth: the length of the chain of runs of actions that caused this one.
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
        """The approximate total size of all values in bytes."""
        return sum(map(len, self._values.values()))

    @property
    def values(self) -> Mapping[str, bytes]:
        """The variables set by the event and by steps."""
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
        return text_to_bytes(self._instance)

    def datetime(self) -> bytes:
        """AMPS_DATETIME."""
        return text_to_bytes(iso_timestamp(self._now))

    def unix_timestamp(self) -> bytes:
        """AMPS_UNIX_TIMESTAMP."""
        return b"%d" % self._now


_DEFAULTS: Final[Mapping[str, Callable[[ActionContext], bytes]]] = {
    "AMPS_INSTANCE_NAME": ActionContext.instance_name,
    "AMPS_DATETIME": ActionContext.datetime,
    "AMPS_UNIX_TIMESTAMP": ActionContext.unix_timestamp,
}


def byte_of(name: str) -> bytes | None:
    """Return the byte of a variable such as AMPS_BYTE_01; None for other names."""
    return _BYTES.get(name)


class VariableTemplate:
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
        """True if the text is one variable and nothing else."""
        return [before for before, _ in self.parts] == [""] and not self.tail

    def expand(self, context: ActionContext) -> bytes:
        """Return the text with the variables replaced by their values."""
        return self.expand_with(lambda _, name: context[name])

    def expand_with(self, make_value: Callable[[int, str], bytes]) -> bytes:
        """Replace each variable by the result of `make_value` for its number and its name."""
        pieces: list[bytes] = []
        for number, (text, name) in enumerate(self.parts):
            pieces += (text_to_bytes(text), make_value(number, name))
        return b"".join([*pieces, text_to_bytes(self.tail)])

    def expand_text(self, context: ActionContext) -> str:
        """Return the result of `expand` as a text."""
        return bytes_to_text(self.expand(context))


def message_variables(topic: str, body: bytes) -> dict[str, bytes]:
    """Return the variables that hold a message."""
    return {
        "AMPS_TOPIC": text_to_bytes(topic),
        "AMPS_DATA": body,
        "AMPS_DATA_LENGTH": b"%d" % len(body),
    }
