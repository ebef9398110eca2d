"""The message types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from server.statistics.resources import MESSAGE_TYPES
from server.statistics.sample import StatisticsEntry

if TYPE_CHECKING:
    from config_schema.spec import InstanceSpec


class MessageTypesSource:
    """The message types, including those that need not be configured.

    Args:
        modules: the module of each type, by its name.
        spec: the instance's description.
    """

    resource = MESSAGE_TYPES

    def __init__(self, modules: Mapping[str, str], spec: InstanceSpec) -> None:
        options = {
            message_type.name: ",".join(
                f"{option.name}={option.value}" for option in message_type.options.items
            )
            for message_type in spec.message_types
        }
        self._entries = [
            StatisticsEntry(name, (module, name, options.get(name, ""), ""), ())
            for name, module in modules.items()
        ]

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`."""
        return iter(self._entries)
