"""Mutation testing: plants defects one at a time, and reports those that no test detects.

    make test-mutants [MUTANTS=300] [SEED=1]

cosmic-ray generates the mutants: each replaces an operator, a number or a condition. The seed
selects the same number in each package of `AREAS`. A copy of the checkout is mutated, and the
area's tests without the mark `process` run there, with the message path interpreted. Survivors are
printed as diffs at the end: either a test is missing, or the mutant is equivalent to the code.

State is kept in build/mutants/. An interrupted run resumes; another seed, another number of mutants
or changed sources start a new run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
DIRECTORY: Final = ROOT / "build" / "mutants"
COPY: Final = DIRECTORY / "checkout"
PROGRAM: Final = Path(sys.executable).with_name("cosmic-ray")

AREAS: Final[Mapping[str, Sequence[str]]] = {
    "amperage/wire": ("wire", "transports", "engine"),
    "server/storage/journal": ("storage/journal",),
    "server/storage/sow": ("storage/sow", "engine"),
    "server/queues/core": ("queues", "engine"),
    "server/replication/core": ("replication",),
    "server/security": ("security", "admin"),
    "server/expressions": ("expressions", "engine"),
}
"""Packages, and the directories in tests/ whose tests must detect their mutants."""

_NOT_COPIED: Final = (".git", ".venv", ".*_cache", "build", "site", "__pycache__")
_TIMEOUT_S: Final = 1_200.0
"""The timeout of the tests. A mutant that exceeds it counts as detected."""

_EQUIVALENT: Final = ("%BitOr%", "%\\_Is\\_%", "%\\_IsNot\\_%", "core/Variable%")
"""Operators whose mutants are mostly equivalent: in annotations (`X | None`), in comparisons by
identity, and of variables."""

_KEPT: Final = (
    "core/ReplaceComparisonOperator_Is_IsNot",
    "core/ReplaceComparisonOperator_IsNot_Is",
)


def main(arguments: Sequence[str]) -> int:
    """Run the remaining mutants; return 1 if any survived."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", 1)[0])
    parser.add_argument("--mutants", type=int, default=300, help="how many (300)")
    parser.add_argument("--seed", type=int, default=1, help="chooses them (1)")
    options = parser.parse_args(arguments)
    begin(f"{options.mutants} {options.seed} {source_digest()}")
    in_each = -(-options.mutants // len(AREAS))
    survivors = [one for area in AREAS for one in plant(area, in_each, options.seed)]
    for change in survivors:
        print(change)
    print(f"survivors: {len(survivors)} of {in_each * len(AREAS)}")
    return 1 if survivors else 0


def source_digest() -> str:
    """Return a digest of the sources and tests of this checkout."""
    digest = sha256()
    for directory in ("amperage", "server", "tests"):
        for path in sorted((ROOT / directory).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def begin(name: str) -> None:
    """Copy the checkout, unless a run of that name is in progress."""
    mark = DIRECTORY / "name"
    if mark.exists() and mark.read_text() == name:
        return
    shutil.rmtree(DIRECTORY, ignore_errors=True)
    shutil.copytree(ROOT, COPY, ignore=shutil.ignore_patterns(*_NOT_COPIED), symlinks=True)
    mark.write_text(name)


def plant(area: str, count: int, seed: int) -> list[str]:
    """Run the remaining mutants of an area; return the survivors as diffs."""
    name = area.replace("/", "-")
    configuration, session = DIRECTORY / f"{name}.toml", DIRECTORY / f"{name}.sqlite"
    if not session.exists():
        paths = " ".join(f"tests/{directory}" for directory in AREAS[area])
        command = f"{sys.executable} -m pytest -x -n 2 -p no:cacheprovider -m 'not process' {paths}"
        configuration.write_text(
            "[cosmic-ray]\n"
            f"module-path = {json.dumps(area)}\n"
            f"timeout = {_TIMEOUT_S}\n"
            "excluded-modules = []\n"
            f"test-command = {json.dumps(command)}\n"
            'distributor.name = "local"\n'
        )
        call("baseline", configuration)
        made = session.with_suffix(".new")
        made.unlink(missing_ok=True)
        call("init", configuration, made)
        choose(made, count, random.Random(f"{seed} {area}"))
        made.rename(session)
    call("exec", configuration, session)
    with closing(sqlite3.connect(session)) as database:
        outcomes = database.execute("SELECT test_outcome, diff FROM work_results").fetchall()
    survivors = [change for outcome, change in outcomes if outcome == "SURVIVED"]
    print(f"{area}: {len(survivors)} of {len(outcomes)} survive", flush=True)
    return survivors


def call(command: str, *files: Path) -> None:
    """Run a command of cosmic-ray in the copy, with the message path interpreted."""
    environment = os.environ | {"AMPERAGE_PURE": "1", "PYTHONPATH": str(COPY), "CI": "true"}
    subprocess.run([PROGRAM, command, *files], cwd=COPY, env=environment, check=True)


def choose(session: Path, count: int, chance: random.Random) -> None:
    """Select a random sample of a session's mutants, each in another place of the source.

    Args:
        session: the database of cosmic-ray, before its first execution.
        count: the size of the sample.
        chance: the source of randomness.
    """
    with closing(sqlite3.connect(session)) as database, database:
        for pattern in _EQUIVALENT:
            database.execute(
                "DELETE FROM mutation_specs WHERE operator_name LIKE ? ESCAPE '\\'"
                " AND operator_name NOT IN (?, ?)",
                (pattern, *_KEPT),
            )
        rows = database.execute(
            "SELECT module_path, start_pos_row, start_pos_col, operator_name, occurrence, job_id"
            " FROM mutation_specs ORDER BY 1, 2, 3, 4, 5"
        ).fetchall()
        places = [list(group) for _, group in groupby(rows, key=lambda row: row[:3])]
        chosen = [chance.choice(place)[-1] for place in chance.sample(places, count)]
        _keep(database, chosen)


def _keep(database: sqlite3.Connection, jobs: Iterable[str]) -> None:
    database.execute("CREATE TEMPORARY TABLE kept (job_id)")
    database.executemany("INSERT INTO kept VALUES (?)", [(job,) for job in jobs])
    for table in ("mutation_specs", "work_items"):
        database.execute(f"DELETE FROM {table} WHERE job_id NOT IN (SELECT job_id FROM kept)")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
