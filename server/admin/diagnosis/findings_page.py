"""/amps/instance/findings: the problems of the instance, the worst first.

Source: the checks of `amps-doctor` that concern a running instance.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

from server.admin.diagnosis.file_checks import disk_problem
from server.admin.diagnosis.findings import CheckFinding, CheckVerdict, worst_first
from server.admin.diagnosis.formats import FORMS, render
from server.admin.diagnosis.sample_checks import health_findings, log_findings, sample_findings
from server.admin.http.messages import HttpError, HttpRequest, HttpResponse, uncached_response
from server.admin.monitoring import FINDINGS
from server.admin.paths import split_path_format
from server.admin.tree import INSTANCE, ROOT
from server.statistics.sources.texts import moment

if TYPE_CHECKING:
    from server.admin.access import AccessControl, Requester
    from server.admin.diagnosis.document import DiagnosisContent
    from server.admin.health import Health
    from server.admin.monitoring import MonitoringPages
    from server.log.targets.memory import MemoryTarget

_NAMES: Final = (ROOT, INSTANCE, FINDINGS)
_FILE_CHECK_INTERVAL_S: Final = 30.0
_FILE_CHECK_TIMEOUT_S: Final = 2.0


class FindingsPage:
    """Answers requests for the findings.

    Args:
        file_findings: has the findings about files.
        health: has the health checks.
        monitoring: has the last sample.
        recent_entries: has the last errors of the log; None if they are not kept.
        access: checks the requester's entitlement.
    """

    def __init__(
        self,
        file_findings: FileFindings,
        health: Health,
        monitoring: MonitoringPages,
        recent_entries: MemoryTarget | None,
        access: AccessControl,
    ) -> None:
        self._file_findings = file_findings
        self._health = health
        self._monitoring = monitoring
        self._recent_entries = recent_entries
        self._access = access

    async def handle_request(self, request: HttpRequest, requester: Requester) -> HttpResponse:
        """List the findings that the requester may see.

        Raises:
            HttpError: the requester may not see any, or there is no such path.
        """
        names, form = split_path_format(request.segments)
        path = "/" + "/".join(_NAMES)
        if names != _NAMES or form not in ("", *FORMS):
            raise HttpError(404, f"There is no {request.path}; expected {path}.")
        await self._access.require_access(requester, path)
        findings = await self._collect()
        hidden = await self._access.refused_paths(requester, {one.path for one in findings})
        shown = worst_first(one for one in findings if one.path not in hidden)
        worst = max((one.verdict for one in shown), default=CheckVerdict.OK)
        content: dict[str, DiagnosisContent] = {
            "timestamp": moment(time.time()),
            "verdict": worst.label,
            "checks": [_as_content(one) for one in shown],
        }
        return uncached_response(render(names, content, form))

    async def _collect(self) -> Sequence[CheckFinding]:
        findings = [*health_findings(await self._health.check_ready(counts_all=True))]
        tree = await self._monitoring.latest_tree()
        findings += sample_findings(tree.snapshot)
        findings += await self._file_findings.latest()
        if self._recent_entries is not None:
            findings += log_findings(self._recent_entries.recent_errors(), time.time_ns())
        return findings


class FileFindings:
    """The findings about files, which may be on a file system that hangs.

    Args:
        find: examines the files, on a thread of its own.
    """

    def __init__(self, find: Callable[[], Iterable[CheckFinding]]) -> None:
        self._find = find
        self._check: Future[list[CheckFinding]] | None = None
        self._findings: list[CheckFinding] = []
        self._next_check_s = 0.0

    async def latest(self) -> list[CheckFinding]:
        """Return the findings, examined again if the last ones are old."""
        now = time.monotonic()
        if self._check is None and now >= self._next_check_s:
            self._next_check_s = now + _FILE_CHECK_INTERVAL_S
            self._check = Future()
            threading.Thread(
                target=self._examine,
                args=(self._check,),
                name="file checks",
                daemon=True,  # one that hangs must not keep the process from ending
            ).start()
        check = self._check
        if check is None:
            return self._findings
        await asyncio.wait([asyncio.wrap_future(check)], timeout=_FILE_CHECK_TIMEOUT_S)
        if not check.done():
            return [*self._findings, _UNANSWERED]
        if self._check is check:
            self._check, self._findings = None, check.result()
        return self._findings

    def _examine(self, answer: Future[list[CheckFinding]]) -> None:
        findings: list[CheckFinding] = []
        try:
            findings.extend(self._find())
        except Exception as error:
            findings.append(disk_problem("file systems", str(error) or type(error).__name__))
        answer.set_result(findings)


_UNANSWERED: Final = disk_problem("file systems", f"no answer within {_FILE_CHECK_TIMEOUT_S:.0f} s")


def _as_content(finding: CheckFinding) -> dict[str, DiagnosisContent]:
    return {
        "area": finding.area,
        "name": finding.name,
        "verdict": finding.verdict.label,
        "value": finding.value,
        "since": finding.since,
        "reason": finding.reason,
        "advice": finding.advice,
        "page": finding.page,
        "runbook": finding.runbook,
    }
