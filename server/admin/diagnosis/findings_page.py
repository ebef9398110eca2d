"""/amps/instance/findings: what is wrong with the instance, the worst first.

Source: the checks of `amps-doctor` that concern a running instance.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

from server.admin.diagnosis.file_checks import DISKS, certificate_findings, disk_findings
from server.admin.diagnosis.findings import CheckFinding, CheckVerdict, worst_first
from server.admin.diagnosis.formats import FORMS, render
from server.admin.diagnosis.sample_checks import health_findings, log_findings, sample_findings
from server.admin.http.messages import HttpError, HttpRequest, HttpResponse
from server.admin.monitoring import FINDINGS
from server.admin.paths import split_path_format
from server.admin.tree import INSTANCE, ROOT
from server.statistics.sources.texts import moment

if TYPE_CHECKING:
    from server.admin.access import AccessControl, Requester
    from server.admin.diagnosis.directories import InstanceDirectory
    from server.admin.diagnosis.document import DiagnosisContent
    from server.admin.health import Health
    from server.admin.monitoring import MonitoringPages
    from server.engine.maintenance.certificate_expiry import CertificateCheck
    from server.log.targets.memory import MemoryTarget

_NAMES: Final = (ROOT, INSTANCE, FINDINGS)
_FILE_CHECK_INTERVAL_S: Final = 30.0
_FILE_CHECK_TIMEOUT_S: Final = 2.0


class FindingsPage:
    """Answers requests for the findings.

    Args:
        directories: the directories of the instance.
        certificates: the certificates in use.
        health: has the health checks.
        monitoring: has the last sample.
        recent_entries: has the last errors of the log; None if they are not kept.
        access: checks the requester's entitlement.
    """

    def __init__(
        self,
        directories: Sequence[InstanceDirectory],
        certificates: CertificateCheck,
        health: Health,
        monitoring: MonitoringPages,
        recent_entries: MemoryTarget | None,
        access: AccessControl,
    ) -> None:
        self._directories = directories
        self._certificates = certificates
        self._health = health
        self._monitoring = monitoring
        self._recent_entries = recent_entries
        self._access = access
        self._file_check: Future[list[CheckFinding]] | None = None
        self._file_findings: list[CheckFinding] = []
        self._next_file_check_s = 0.0

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
        return HttpResponse(render(names, content, form), headers=[("Cache-Control", "no-store")])

    async def _collect(self) -> Sequence[CheckFinding]:
        findings = [*health_findings(await self._health.check_ready(counts_all=True))]
        tree = await self._monitoring.latest_tree()
        findings += sample_findings(tree.snapshot)
        findings += await self._check_files()
        if self._recent_entries is not None:
            findings += log_findings(self._recent_entries.recent_errors(), time.time_ns())
        return findings

    async def _check_files(self) -> list[CheckFinding]:
        """Return the findings about files, which may be on a file system that hangs."""
        now = time.monotonic()
        if self._file_check is None and now >= self._next_file_check_s:
            self._next_file_check_s = now + _FILE_CHECK_INTERVAL_S
            self._file_check = Future()
            threading.Thread(
                target=self._find_in_files,
                args=(self._file_check,),
                name="file checks",
                daemon=True,  # one that hangs must not keep the process from ending
            ).start()
        check = self._file_check
        if check is None:
            return self._file_findings
        await asyncio.wait([asyncio.wrap_future(check)], timeout=_FILE_CHECK_TIMEOUT_S)
        if not check.done():
            return [*self._file_findings, _UNANSWERED]
        if self._file_check is check:
            self._file_check, self._file_findings = None, check.result()
        return self._file_findings

    def _find_in_files(self, answer: Future[list[CheckFinding]]) -> None:
        findings: list[CheckFinding] = []
        try:
            findings += certificate_findings(self._certificates.users)
            findings += disk_findings(self._directories)
        except OSError as error:
            value = f"{error.filename}: {error.strerror}"
            findings.append(_disk_problem(value))
        answer.set_result(findings)


def _disk_problem(value: str) -> CheckFinding:
    return CheckFinding(
        DISKS,
        "file systems",
        CheckVerdict.WRONG,
        value,
        "journals, records or logs may not be written",
        "look at the disks and the mounts of the host",
        page="log",
        runbook="full-disks",
        path="/amps/host/disks",
    )


_UNANSWERED: Final = _disk_problem(f"no answer within {_FILE_CHECK_TIMEOUT_S:.0f} s")


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
