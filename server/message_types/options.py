"""The options of one `<MessageType>`, read by name; unread options are errors."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from config_schema.units import UnitError, parse_bool
from server.message_types.base import MessageTypeError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_VERSION_COMPLIANCE = "AMPSVersionCompliance"
_VERSIONS = ("2", "4", "5")


class MessageTypeOptions:
    """Reads options by name and reports the unread ones.

    `AMPSVersionCompliance` belongs to every type: it selects the numbers of FIX fields in event
    topics, which the event topics implement; here it is only checked (AMPS User Guide, Configuring
    Message Types).
    """

    def __init__(self, options: Mapping[str, Sequence[str]]) -> None:
        self._given = options
        self._known_names = {_VERSION_COMPLIANCE}
        version = self.text(_VERSION_COMPLIANCE)
        if version is not None and version not in _VERSIONS:
            raise MessageTypeError(
                _VERSION_COMPLIANCE, f"expected one of {', '.join(_VERSIONS)}, not {version!r}"
            )

    def texts(self, name: str) -> Sequence[str]:
        """Return all values of a repeatable option, in the order of the configuration."""
        self._known_names.add(name)
        return self._given.get(name, ())

    def text(self, name: str) -> str | None:
        """Return the value of an option that may be given once, None if it is not given."""
        values = self.texts(name)
        if len(values) > 1:
            raise MessageTypeError(name, f"given {len(values)} times, expected once")
        return values[0] if values else None

    def boolean(self, name: str, *, default: bool) -> bool:
        """Return the value of a yes-or-no option."""
        text = self.text(name)
        try:
            return default if text is None else parse_bool(text)
        except UnitError as error:
            raise MessageTypeError(name, str(error)) from None

    def refuse_unknown(self) -> None:
        """Report the first option that was not read; call it after all options have been read.

        Raises:
            MessageTypeError: there is an option that this type does not have.
        """
        for name in self._given:
            if name not in self._known_names:
                near = get_close_matches(name, self._known_names, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise MessageTypeError(name, f"this message type has no such option{hint}")
