"""amps-action-if-file-system-usage: the action goes on only if a file system is full enough."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, ClassVar

from actions.module import Condition, StepError
from actions.options import required

if TYPE_CHECKING:
    from actions.context import ActionContext
    from actions.step_options import StepOptions


class IfFileSystemUsage(Condition):
    """Goes on if more of a file system is used than a percentage."""

    time_limit: ClassVar[float] = 60.0

    def __init__(self, options: StepOptions) -> None:
        super().__init__(options)
        self._path = required(options, "Path")
        self._threshold = required(options, "GreaterThan")

    async def holds(self, context: ActionContext) -> bool:
        """Return true if the file system is filled to the limit.

        Raises:
            OSError: the path is not there.
            StepError: the threshold is no percentage.
        """
        text = self._threshold.expand_text(context)
        try:
            threshold = float(text.strip().removesuffix("%"))
        except ValueError:
            raise StepError(f"GreaterThan: {text!r} is no percentage, such as 90%") from None
        path = self._path.expand_text(context)
        return await self.services.helper_threads.call(lambda: used_percentage(path)) > threshold


def used_percentage(path: str) -> float:
    """Return the used percentage of the space that users other than root may use, as df does."""
    usage = os.statvfs(path)
    used = usage.f_blocks - usage.f_bfree
    usable = used + usage.f_bavail
    return 100 * used / usable if usable else 0.0
