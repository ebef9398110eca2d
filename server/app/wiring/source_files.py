"""The files, beside its configuration, that parts of an instance are made from when it starts.

Objects made from them are in use everywhere (compiled filters, keys of records), so a changed file
is only logged, and takes effect with a restart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from config_schema.spec import InstanceSpec
    from server.message_types.base import MessageType


def source_files(
    spec: InstanceSpec, message_types: Mapping[str, MessageType]
) -> Iterator[tuple[Path, str]]:
    """Yield the files, each with a description of the part made from it.

    Args:
        spec: the instance.
        message_types: its message types, by name.
    """
    for name, message_type in message_types.items():
        files: tuple[Path, ...] = getattr(message_type, "source_files", ())  # of `ProtobufType`
        for path in files:
            yield path, f"the message type {name}"
    for module in spec.modules:
        path = Path(module.library)
        if path.is_file():  # others are names of modules of the server
            yield path, f"the module {module.name}"
