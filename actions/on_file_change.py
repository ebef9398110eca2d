"""amps-action-on-file-change: a file has been written, created or removed.

AMPS has no such module. It is for files that other programs provide: a new list of
instruments, a certificate, the configuration itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from actions.module import Trigger
from server.util.encoding import text_to_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from actions.action import Action
    from actions.services import ActionServices
    from config_schema.spec import Options


class OnFileChange(Trigger):
    """Runs when the content of a file has changed, also if it was not there before or is not now.

    Several changes that follow each other closely count as one.
    """

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._stop_watching: Callable[[], None] | None = None

    def provision(self, services: ActionServices, action: Action) -> None:
        """Watch the file."""
        path = self.options.get("Path") or ""
        self._stop_watching = services.file_watch.watch(
            Path(path),
            lambda change: action.post(
                {"AMPS_FILE_PATH": text_to_bytes(path), "AMPS_FILE_CHANGE": text_to_bytes(change)}
            ),
        )

    def close(self) -> None:
        """Stop watching."""
        if self._stop_watching is not None:
            self._stop_watching()
