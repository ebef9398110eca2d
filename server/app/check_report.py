"""Reports on checked configurations: each by itself, and all of them against each other."""

from __future__ import annotations

import json
import os
from collections.abc import Collection

from config_schema.problems import Problems, Severity
from config_schema.spec import InstanceSpec
from config_schema.topology import InstanceDescription, check_topology, describe
from server.app.stdio import put, say


def report(path: str, problems: Problems, *, as_json: bool = False) -> int:
    """Print the problems of a configuration, and the verdict.

    Args:
        path: the path of the configuration.
        problems: the problems found.
        as_json: also print a JSON object on standard output.

    Returns:
        The exit code: 1 if the configuration cannot be used, else 0.
    """
    if as_json:
        _put_object({"configuration": path}, "can_be_used", problems)
    return _conclude(path, problems, "is valid", "cannot be used")


def print_problems(problems: Problems, *severities: Severity) -> None:
    """Print the problems that have one of these severities."""
    for problem in problems:
        if problem.severity in severities:
            say(str(problem))


class TopologyCheck:
    """Configurations that are given together, to be verified against each other.

    They may be unrelated: nothing is printed unless one of them has Replication. A file that is
    given twice is one instance.
    """

    def __init__(self) -> None:
        self._instances: dict[str, tuple[str, InstanceDescription]] = {}
        self._unusable_paths: list[str] = []
        self._secrets: set[str] = set()

    def add(self, path: str, spec: InstanceSpec, secrets: Collection[str]) -> None:
        """Add a usable configuration, with its secrets, which are redacted in the report."""
        self._secrets.update(secrets)
        self._instances.setdefault(os.path.realpath(path), (path, describe(spec)))

    def add_unusable(self, path: str) -> None:
        """Record a configuration that cannot be used: then links to it cannot be verified."""
        self._unusable_paths.append(path)

    def verify(self, *, as_json: bool = False) -> int:
        """Print the problems of the configurations with each other, and the verdict.

        Args:
            as_json: also print a JSON object on standard output.

        Returns:
            The exit code: 1 if they do not fit together, else 0.
        """
        instances = list(self._instances.values())
        if len(instances) + len(self._unusable_paths) < 2 or not any(
            instance.destinations for _, instance in instances
        ):
            return 0
        if self._unusable_paths:
            say(f"not verified against each other, for want of {', '.join(self._unusable_paths)}")
            return 0  # the unusable configuration has set the exit code already
        problems = Problems()
        problems.redact_values(self._secrets)
        for path, _ in instances:
            problems.register_file(path)
        for finding in check_topology([instance for _, instance in instances]):
            finding.report(problems)
        paths = [path for path, instance in instances if instance.replicates]
        if as_json:
            _put_object({"configurations": paths}, "fit_together", problems)
        return _conclude(", ".join(paths), problems, "fit together", "do not fit together")


def _put_object(subject: dict[str, object], verdict: str, problems: Problems) -> None:
    fields = {
        verdict: not problems.has_errors,
        "errors": _count(problems, Severity.ERROR),
        "warnings": _count(problems, Severity.WARNING),
        "problems": [problem.as_data() for problem in problems],
    }
    put(json.dumps(subject | fields, ensure_ascii=False) + "\n", encoding="utf-8")


def _conclude(subject: str, problems: Problems, good: str, bad: str) -> int:
    print_problems(problems, Severity.ERROR, Severity.WARNING, Severity.INFO)
    errors = _count(problems, Severity.ERROR)
    warnings = _count(problems, Severity.WARNING)
    counts = f"{_plural(errors, 'error')}, {_plural(warnings, 'warning')}"
    say(f"{subject} {bad if errors else good}: {counts}")
    return 1 if errors else 0


def _count(problems: Problems, severity: Severity) -> int:
    return sum(problem.severity is severity for problem in problems)


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
