"""A mismatch between two configurations."""

from dataclasses import dataclass

from config_schema.problems import Location, Problem, Problems, Severity


@dataclass(frozen=True, slots=True)
class TopologyFinding:
    """One mismatch, located where it can be corrected or excluded.

    Attributes:
        check: its name in ExcludeValidation, or another: `name`, `group`, `address`,
            `encryption`, `sync`, `ring`, `link`.
        problem: the problem, with both sides in its message.
        other: the location of the other side.
    """

    check: str
    problem: Problem
    other: Location

    @property
    def is_error(self) -> bool:
        """True if the two instances must not be connected."""
        return self.problem.severity is Severity.ERROR

    def report(self, problems: Problems) -> None:
        """Add it to the other problems."""
        problems.add(self.problem)
