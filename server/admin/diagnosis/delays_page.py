"""/amps/instance/delays: measures for how long clients wait for the engine, and why.

Source: not in AMPS; `amps-doctor --latency` shows it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

from config_schema.units import UnitError, parse_interval
from server.admin.diagnosis.formats import FORMS, render
from server.admin.http.messages import HttpError, HttpRequest, HttpResponse
from server.admin.monitoring import DELAYS
from server.admin.paths import split_path_format
from server.admin.tree import INSTANCE, ROOT
from server.engine.delay_measurement import (
    LATE_S,
    MAX_DURATION_S,
    DelayMeasurement,
    DelayReport,
)
from server.statistics.sources.texts import moment
from server.storage.sow.records import NANOSECONDS
from server.util.clock import MICROSECONDS_PER_SECOND

if TYPE_CHECKING:
    from server.admin.access import AccessControl, Requester
    from server.admin.diagnosis.document import DiagnosisContent
    from server.engine.scheduler import Scheduler

_NAMES: Final = (ROOT, INSTANCE, DELAYS)
_DEFAULT_DURATION: Final = "5s"


class DelaysPage:
    """Answers requests for a measurement, one at a time, when it has ended.

    Args:
        scheduler: the engine's scheduler.
        post: schedules a call on the engine's thread.
        access: checks the requester's entitlement.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        post: Callable[[Callable[[], None]], None],
        access: AccessControl,
    ) -> None:
        self._scheduler = scheduler
        self._post = post
        self._access = access
        self._is_measuring = False

    async def handle_request(self, request: HttpRequest, requester: Requester) -> HttpResponse:
        """Measure for the time that the parameter `for` gives, and return the result.

        Raises:
            HttpError: the requester may not do that, the time is invalid, or the instance stops.
        """
        names, form = split_path_format(request.segments)
        path = "/" + "/".join(_NAMES)
        if names != _NAMES or form not in ("", *FORMS):
            raise HttpError(404, f"There is no {request.path}; expected {path}.")
        await self._access.require_access(requester, path)
        seconds = _duration_s(request.query.get("for") or _DEFAULT_DURATION)
        if self._is_measuring:
            raise HttpError(409, "Delays are being measured for another request. Try again later.")
        try:
            report = await asyncio.wrap_future(self._start(seconds))
        except RuntimeError:
            raise HttpError(503, "The instance is stopping.") from None
        except TimeoutError as error:
            raise HttpError(504, f"Delays cannot be measured: {error}.") from None
        content = _as_content(report, seconds)
        return HttpResponse(render(names, content, form), headers=[("Cache-Control", "no-store")])

    def _start(self, seconds: float) -> Future[DelayReport]:
        """Start a measurement on a thread that does not keep the process from ending."""
        answer: Future[DelayReport] = Future()
        answer.set_running_or_notify_cancel()  # from now on it is not cancelled with its reader
        self._is_measuring = True

        def measure() -> None:
            try:
                report = DelayMeasurement(self._scheduler, self._post).run(seconds)
            except Exception as error:
                answer.set_exception(error)
            else:
                answer.set_result(report)
            finally:
                self._is_measuring = False

        threading.Thread(target=measure, name="delay measurement", daemon=True).start()
        return answer


def _duration_s(text: str) -> float:
    """Return the duration of a measurement in seconds.

    Raises:
        HttpError: it is no duration, or too long.
    """
    try:
        seconds = parse_interval(text) / NANOSECONDS
    except UnitError as error:
        raise HttpError(400, f"for: {error}.") from None
    if not 0 < seconds <= MAX_DURATION_S:
        raise HttpError(400, f"for: {text} is not between 0 and {MAX_DURATION_S:g} seconds.")
    return seconds


def _as_content(report: DelayReport, seconds: float) -> dict[str, DiagnosisContent]:
    return {
        "timestamp": moment(time.time()),
        "seconds": seconds,
        "calls": len(report.delays_s),
        "late_us": _microseconds(LATE_S),
        "late_calls": sum(delay_s > LATE_S for delay_s in report.delays_s),
        "p50_us": _microseconds(report.percentile_s(0.5)),
        "p99_us": _microseconds(report.percentile_s(0.99)),
        "p999_us": _microseconds(report.percentile_s(0.999)),
        "longest_us": _microseconds(report.percentile_s(1.0)),
        "causes": [
            {
                "kind": cause.kind.value,
                "name": cause.name,
                "client": cause.client,
                "count": total.calls,
                "longest_us": _microseconds(total.longest_s),
                "total_us": _microseconds(total.total_s),
            }
            for cause, total in report.causes.items()
        ],
    }


def _microseconds(seconds: float) -> int:
    return round(seconds * MICROSECONDS_PER_SECOND)
