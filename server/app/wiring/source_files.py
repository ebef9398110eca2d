"""The files that an instance is made from: its configuration, and the files that its parts read.

Objects made from them are in use everywhere (compiled filters, keys of records), so a changed file
is only logged, and takes effect with a restart, or the configuration with a reload.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from config_schema.spec import InstanceSpec
    from server.message_types.base import MessageType
    from server.process.file_watch import FileWatch
    from server.util.log_protocol import ServerLog


class SourceFileWatch:
    """Watches the files that an instance is made from, and logs their changes.

    Args:
        file_watch: watches files.
        message_types: the message types of the instance, by name.
        log: gets an entry for each change.

    Attributes:
        configuration: the configuration file, and the files that it includes.
    """

    def __init__(
        self, file_watch: FileWatch, message_types: Mapping[str, MessageType], log: ServerLog
    ) -> None:
        self.configuration: tuple[str, ...] = ()
        self._file_watch: Final = file_watch
        self._message_types: Final = message_types
        self._log: Final = log
        self._ends: dict[tuple[str, str], Callable[[], None]] = {}  # of watches, by path and user

    def watch(self, configuration: tuple[str, ...], spec: InstanceSpec) -> None:
        """Watch the files of a configuration, and no others any more.

        Args:
            configuration: the configuration file, and the files that it includes.
            spec: the instance.
        """
        self.configuration = configuration
        wanted = {(path, ""): partial(self._log_change, path) for path in configuration}
        for path, user in source_files(spec, self._message_types):
            wanted[str(path), user] = partial(self._log_source_change, path, user)
        for gone in self._ends.keys() - wanted.keys():
            self._ends.pop(gone)()
        for key in wanted.keys() - self._ends.keys():
            self._ends[key] = self._file_watch.watch(Path(key[0]), wanted[key])

    def _log_change(self, path: str, change: str) -> None:
        self._log.emit("00-0040", path=path, change=change)

    def _log_source_change(self, path: Path, user: str, change: str) -> None:
        self._log.emit("00-0042", path=path, user=user, change=change)


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
