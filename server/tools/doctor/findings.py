"""What is found out about an instance, and what is thought of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final


class Verdict(IntEnum):
    """What is thought of something, the worse the higher."""

    OK = 0
    LOOK = 1
    WRONG = 2

    @property
    def label(self) -> str:
        """How it is called in reports."""
        return {Verdict.OK: "OK", Verdict.LOOK: "look at this", Verdict.WRONG: "wrong"}[self]


EXIT_STATUS: Final = {Verdict.OK: 0, Verdict.LOOK: 1, Verdict.WRONG: 3}
"""Of the command, by the worst verdict; 2 is a command line that makes no sense."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One check.

    Attributes:
        area: what it belongs to, such as `machine`.
        name: what has been looked at.
        verdict: what is thought of it.
        value: what was found, with its unit.
        reason: why that is thought of it; empty for what is as it should be.
        advice: what to do about it; likewise.
    """

    area: str
    name: str
    verdict: Verdict
    value: str
    reason: str = ""
    advice: str = ""


@dataclass(slots=True)
class Examination:
    """All that has been found out.

    Attributes:
        findings: the checks, in the order in which they were made.
        facts: what is known, by subject, as JSON has it.
        texts: files for the archive, by their paths in it.
        documents: the same of JSON.
    """

    findings: list[Finding] = field(default_factory=list)
    facts: dict[str, object] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    documents: dict[str, object] = field(default_factory=dict)

    def good(self, area: str, name: str, value: str) -> None:
        """Something is as it should be."""
        self.findings.append(Finding(area, name, Verdict.OK, value))

    def look(self, area: str, name: str, value: str, reason: str, advice: str) -> None:
        """Somebody should look at something."""
        self.findings.append(Finding(area, name, Verdict.LOOK, value, reason, advice))

    def wrong(self, area: str, name: str, value: str, reason: str, advice: str) -> None:
        """Something is wrong."""
        self.findings.append(Finding(area, name, Verdict.WRONG, value, reason, advice))

    def judge(
        self,
        area: str,
        name: str,
        value: str,
        verdict: Verdict,
        reason: str,
        advice: str,
    ) -> None:
        """Add a check with reason and advice, which are left out where all is well."""
        if verdict is Verdict.OK:
            reason = advice = ""
        self.findings.append(Finding(area, name, verdict, value, reason, advice))

    def attempt(self, area: str, step: Callable[[], None]) -> None:
        """Make a step of the examination, whose failure is a finding and no end.

        Args:
            area: of what it finds.
            step: adds to this examination.
        """
        try:
            step()
        except OSError as error:
            where = error.filename or area
            self.look(
                area,
                "what could be looked at",
                f"{where}: {error.strerror or error}",
                "the rest of this area has not been looked at",
                "run amps-doctor as the user of the server, or as root",
            )
        except Exception as error:  # whatever state the instance is in, there is a report
            self.look(
                area,
                "what could be looked at",
                f"{type(error).__name__}: {error}",
                "a defect of amps-doctor: the rest of this area has not been looked at",
                "report it, with this line",
            )

    @property
    def worst(self) -> Verdict:
        """The worst verdict."""
        return max((one.verdict for one in self.findings), default=Verdict.OK)
