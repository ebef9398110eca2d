"""Problems of a configuration file: located errors, warnings and notes, and how they print.

One run over a file reports all of its problems. Each stage (reading, structure, meaning) adds to
the same `Problems`; the program decides at the end whether the configuration can be used.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol

from config_schema.redaction import without_values


@dataclass(frozen=True, slots=True, order=True)
class Location:
    """A line of a file; line 0 is the file as a whole (it could not be read at all)."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


class HasLocation(Protocol):
    """An object with a location in the configuration: a node, a part of the spec."""

    @property
    def location(self) -> Location:
        """Its location."""


class Severity(Enum):
    """The severity of a problem: only an ERROR prevents the use of the configuration."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem, in words for the author of the file.

    Attributes:
        location: where it was written.
        severity: only an error prevents the use of the configuration.
        element: the element with its parent, "Transport/InetAddr"; "" for a whole file.
        message: the problem and the expected content.
        hint: the remedy, or None if the message already contains it.
    """

    location: Location
    severity: Severity
    element: str
    message: str
    hint: str | None = None

    def __str__(self) -> str:
        subject = f"{self.element}: " if self.element else ""
        advice = f"; {self.hint}" if self.hint else ""
        return f"{self.location}: {self.severity}: {subject}{self.message}{advice}"

    def as_data(self) -> dict[str, object]:
        """Return the problem as JSON-compatible data."""
        return {
            "file": self.location.file,
            "line": self.location.line,
            "severity": str(self.severity),
            "element": self.element,
            "message": self.message,
            "hint": self.hint,
        }


class Problems:
    """Collects the problems of one run; iterates in the order of the files, then of their lines."""

    def __init__(self) -> None:
        # A dict, to drop repeated problems and keep their order.
        self._problems: dict[Problem, None] = {}
        self._file_rank: dict[str, int] = {}
        self._secrets: set[str] = set()

    def register_file(self, file: str) -> None:
        """Fix the rank of `file` among the others: files print in the order they were read."""
        self._file_rank.setdefault(file, len(self._file_rank))

    def error(
        self, where: HasLocation | Location, element: str, message: str, hint: str | None = None
    ) -> None:
        """Add a problem that prevents the use of the configuration."""
        self._add(where, Severity.ERROR, element, message, hint)

    def warning(
        self, where: HasLocation | Location, element: str, message: str, hint: str | None = None
    ) -> None:
        """Add a problem that works, but probably not as its author expects."""
        self._add(where, Severity.WARNING, element, message, hint)

    def info(
        self, where: HasLocation | Location, element: str, message: str, hint: str | None = None
    ) -> None:
        """Add a remark that requires no change."""
        self._add(where, Severity.INFO, element, message, hint)

    def add(self, problem: Problem) -> None:
        """Add a complete problem."""
        self.register_file(problem.location.file)
        self._problems.setdefault(problem)

    def redact_values(self, values: Collection[str]) -> None:
        """Redact these values in all problems, including those added before."""
        self._secrets.update(values)

    @property
    def has_errors(self) -> bool:
        """True if the configuration must not be used."""
        return any(problem.severity is Severity.ERROR for problem in self._problems)

    def __iter__(self) -> Iterator[Problem]:
        return map(self._redacted, sorted(self._problems, key=self._sort_key))

    def __len__(self) -> int:
        return len(self._problems)

    def _add(
        self,
        where: HasLocation | Location,
        severity: Severity,
        element: str,
        message: str,
        hint: str | None,
    ) -> None:
        location = where if isinstance(where, Location) else where.location
        self.add(Problem(location, severity, element, message, hint))

    def _redacted(self, problem: Problem) -> Problem:
        hint = problem.hint and without_values(problem.hint, self._secrets)
        return replace(problem, message=without_values(problem.message, self._secrets), hint=hint)

    def _sort_key(self, problem: Problem) -> tuple[int, int]:
        return self._file_rank[problem.location.file], problem.location.line
