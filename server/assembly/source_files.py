"""The files, beside its configuration, that parts of an instance are made from when it starts.

What has been made from them is in use everywhere (compiled filters, keys of records), so that a
changed file is announced, and takes effect with a restart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from config_schema.spec import InstanceSpec
    from server.message_types.base import MessageType


@runtime_checkable
class _MadeFromFiles(Protocol):
    @property
    def source_files(self) -> tuple[Path, ...]:
        """The files that it was made from."""


def source_files(
    spec: InstanceSpec, message_types: Mapping[str, MessageType]
) -> Iterator[tuple[Path, str]]:
    """The files, each with the part that is made from it, for people.

    Args:
        spec: the instance.
        message_types: its message types, by name.
    """
    for name, message_type in message_types.items():
        if isinstance(message_type, _MadeFromFiles):
            for path in message_type.source_files:
                yield path, f"the message type {name}"
    for module in spec.modules:
        path = Path(module.library)
        if path.is_file():  # others are names of modules of the server
            yield path, f"the module {module.name}"
