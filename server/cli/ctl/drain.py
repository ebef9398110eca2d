"""Drains an instance, and follows its progress until it has stopped."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from server.cli.ctl.execution import CtlResult, execute_operation
from server.cli.ctl.instance import CtlError, CtlInstance, CtlStatus, NoInstanceError

_PATH: Final = ("drain",)
_INSTANCE: Final = (*_PATH, "instance")
_POLL_INTERVAL_S: Final = 0.2
_STOP_TIMEOUT_S: Final = 120.0
"""Seconds that a drained instance may take to stop."""

_SERVING: Final = "serving"
"""The state of a process in which no drain has begun."""
_DRAINED: Final = "drained"
_STOPPING: Final = "stopping"
_NOT_DRAINED: Final = "not drained"


def cancel_drain(instance: CtlInstance) -> CtlResult:
    """Let an instance serve again that is being drained."""
    return execute_operation(instance, (*_INSTANCE, "cancel"))


def drain(
    instance: CtlInstance, timeout: str, *, is_forced: bool, show: Callable[[str], None]
) -> CtlResult:
    """Drain an instance, and wait until it has stopped or serves again.

    Args:
        instance: the instance.
        timeout: how long that may take, with its unit.
        is_forced: whether it stops after that time in any case.
        show: takes lines of progress.

    Raises:
        CtlError: the drain has not begun, or its result is unknown.
    """
    force = "true" if is_forced else "false"
    instance.execute((*_INSTANCE, "begin"), {"timeout": timeout, "force": force})
    last = ""
    while True:
        try:
            state = instance.list_entries(_PATH)[0].name
        except CtlError as error:
            text = f"the instance does not answer any more; it was {last}: {error}"
            raise CtlError(text, CtlStatus.UNKNOWN) from None
        if state != last:
            show(state)
            last = state
        word = state.partition(":")[0]
        if word == _SERVING:
            text = "another process of the instance serves, and the result of the drain is unknown"
            raise CtlError(text, CtlStatus.UNKNOWN)
        if word == _NOT_DRAINED:
            return CtlResult("", f"the instance is {state}", CtlStatus.REFUSED)
        if word in (_DRAINED, _STOPPING):
            break
        time.sleep(_POLL_INTERVAL_S)
    _wait_for_stop(instance)
    if word == _STOPPING:
        unfinished = state.partition(": ")[2]
        return CtlResult("", f"the instance has stopped with {unfinished}", CtlStatus.REFUSED)
    return CtlResult("", "The instance has stopped.", CtlStatus.DONE)


def _wait_for_stop(instance: CtlInstance) -> None:
    """Wait until the process of a drained instance has ended.

    A process that has been drained serves no more: one that does is another.

    Raises:
        CtlError: that takes too long, or cannot be seen.
    """
    deadline = time.monotonic() + _STOP_TIMEOUT_S
    reason = ""
    while time.monotonic() < deadline:
        try:
            state = instance.list_entries(_PATH)[0].name
        except NoInstanceError:
            return
        except CtlError as error:
            reason = f": {error}"
        else:
            reason = ""
            if state.partition(":")[0] not in (_DRAINED, _STOPPING):
                return
        time.sleep(_POLL_INTERVAL_S)
    text = f"the instance is drained and is not seen to stop{reason}"
    raise CtlError(text, CtlStatus.UNKNOWN)
