"""The instance itself, its tuning, and its message types."""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from amperage.wire.bookmarks import client_hash
from config_schema.version import AMPS_VERSION
from server.statistics.resources import INSTANCE, MESSAGE_TYPES, TUNING
from server.statistics.sample import StatisticsEntry
from server.statistics.sources.texts import duration

if TYPE_CHECKING:
    from config_schema.spec import InstanceSpec


class InstanceSource:
    """The instance.

    Args:
        spec: its description.
    """

    resource = INSTANCE

    def __init__(self, spec: InstanceSpec) -> None:
        self._started_s = time.monotonic()
        self._static_values = (
            spec.location.file,
            os.getcwd(),
            spec.description or "",
            spec.environment or "",
            spec.name,
            str(client_hash(spec.name)),
            os.getpid(),
            _user(),
            AMPS_VERSION,
        )

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`."""
        yield StatisticsEntry(
            "", self._static_values, (duration(time.monotonic() - self._started_s),)
        )


class TuningSource:
    """The tuning of the instance.

    Args:
        spec: the instance's description.
    """

    resource = TUNING

    def __init__(self, spec: InstanceSpec) -> None:
        self._entry = StatisticsEntry(
            "", ("enabled" if spec.tuning.numa_enabled else "disabled",), ()
        )

    def entries(self) -> Iterator[StatisticsEntry]:
        """See `StatisticsSource.entries`."""
        yield self._entry


def _user() -> str:
    """Return the user of the process: a name, or if the system has none, a number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


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
