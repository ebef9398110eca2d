"""What two configurations have against each other."""

from dataclasses import dataclass

from config_schema.problems import Location, Problem, Problems, Severity


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that does not fit, located where it can be mended or excluded.

    Attributes:
        check: the name that ExcludeValidation has for it, or another: `name`, `group`, `address`,
            `encryption`, `sync`, `ring`, `link`.
        problem: what it is, with both sides in its message.
        other: where the other side of it was written.
    """

    check: str
    problem: Problem
    other: Location

    @property
    def is_error(self) -> bool:
        """Whether the two instances must not be connected."""
        return self.problem.severity is Severity.ERROR

    def report(self, problems: Problems) -> None:
        """Add it to what else is wrong."""
        problems.add(self.problem)
