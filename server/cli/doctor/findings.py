"""The findings, facts and texts of an examination."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from server.admin.diagnosis.findings import CheckFinding, CheckVerdict, checked

EXIT_STATUS: Final = {CheckVerdict.OK: 0, CheckVerdict.WARNING: 1, CheckVerdict.ERROR: 3}
"""Exit status of the command, by the worst verdict; 2 is an invalid command line."""
VERDICT_LABELS: Final = {
    CheckVerdict.OK: "OK",
    CheckVerdict.WARNING: "look at this",
    CheckVerdict.ERROR: "wrong",
}
"""The verdicts in reports."""


@dataclass(slots=True)
class Examination:
    """All results of an examination.

    Attributes:
        findings: the checks, in the order in which they were made.
        facts: observed facts, by subject, as JSON values.
        texts: text files for the archive, by their paths in it.
        documents: JSON files for the archive, likewise.
    """

    findings: list[CheckFinding] = field(default_factory=list)
    facts: dict[str, object] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    documents: dict[str, object] = field(default_factory=dict)

    def add_ok(self, area: str, name: str, value: str) -> None:
        """Add a check with the verdict `OK`."""
        self.findings.append(CheckFinding(area, name, CheckVerdict.OK, value))

    def add_attention(self, area: str, name: str, value: str, reason: str, advice: str) -> None:
        """Add a check that the operator should look at."""
        self.findings.append(CheckFinding(area, name, CheckVerdict.WARNING, value, reason, advice))

    def add_wrong(self, area: str, name: str, value: str, reason: str, advice: str) -> None:
        """Add a check with the verdict `ERROR`."""
        self.findings.append(CheckFinding(area, name, CheckVerdict.ERROR, value, reason, advice))

    def add_finding(
        self,
        area: str,
        name: str,
        value: str,
        verdict: CheckVerdict,
        reason: str,
        advice: str,
    ) -> None:
        """Add a check; drop reason and advice if the verdict is `OK`."""
        self.findings.append(checked(CheckFinding(area, name, verdict, value, reason, advice)))

    def run_step(self, area: str, step: Callable[[], None]) -> None:
        """Run a step of the examination; record its failure as a finding and continue.

        Args:
            area: area of the step's findings.
            step: adds to this examination.
        """
        try:
            step()
        except OSError as error:
            where = error.filename or area
            self.add_attention(
                area,
                "what could be looked at",
                f"{where}: {error.strerror or error}",
                "the rest of this area has not been looked at",
                "run amps-doctor as the user of the server, or as root",
            )
        except Exception as error:  # a report must be made in any state of the instance
            self.add_attention(
                area,
                "what could be looked at",
                f"{type(error).__name__}: {error}",
                "a defect of amps-doctor: the rest of this area has not been looked at",
                "report it, with this line",
            )

    @property
    def worst_verdict(self) -> CheckVerdict:
        """The worst verdict."""
        return max((finding.verdict for finding in self.findings), default=CheckVerdict.OK)
