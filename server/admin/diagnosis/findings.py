"""The findings of checks: the same of a running instance and of `amps-doctor`.

The console's overview, `amps-ctl health` and `amps-doctor` show them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

_MAX_PER_AREA: Final = 20


class CheckVerdict(IntEnum):
    """The result of a check; the higher, the worse."""

    OK = 0
    WARNING = 1
    ERROR = 2

    @property
    def label(self) -> str:
        """The name in documents for programs."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """The result of one check.

    Attributes:
        area: the group of checks, such as `machine`.
        name: the subject of the check.
        verdict: its result.
        value: the observed value, with its unit.
        reason: why it got that verdict; empty for `OK`.
        advice: how to correct it; empty for `OK`.
        since: when it began, as in the tree; empty if that is not known.
        page: the page of the console that shows it, as in its URL.
        runbook: the section of docs/operations.md about it, as in links.
        path: the resource that a user must be permitted to read to see it.
    """

    area: str
    name: str
    verdict: CheckVerdict
    value: str
    reason: str = ""
    advice: str = ""
    since: str = ""
    page: str = ""
    runbook: str = ""
    path: str = ""


def checked(finding: CheckFinding) -> CheckFinding:
    """Return a finding without reason and advice if its verdict is `OK`."""
    return replace(finding, reason="", advice="") if not finding.verdict else finding


def worst_first(findings: Iterable[CheckFinding]) -> list[CheckFinding]:
    """Return findings, the worst first; within a verdict, in their order."""
    return sorted(findings, key=lambda finding: -finding.verdict)


def limit_findings(findings: list[CheckFinding], subject_plural: str) -> list[CheckFinding]:
    """Return the first findings of an area, the last of them with the number of the others.

    Args:
        findings: the findings, the worst first.
        subject_plural: the plural of their subjects.
    """
    shown = findings[:_MAX_PER_AREA]
    if len(findings) > len(shown):
        name = f"{len(findings) - len(shown):,} more {subject_plural}"
        page = shown[-1].page.partition("&id=")[0]
        shown.append(replace(findings[len(shown)], name=name, value="", page=page))
    return shown
