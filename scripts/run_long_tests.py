"""Runs the tests that are left to chance round after round, each with a seed of its own.

    make test-long [ROUNDS=60] [SEED=1]

These are the tests marked `long`, also those that `make test` leaves out, and all that hypothesis
makes examples for. Their output goes to
build/test-long/, one file for each round. Interrupted, a run goes on with the round at which it
was; with another SEED, or when all rounds are over, it begins anew.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
DIRECTORY: Final = ROOT / "build" / "test-long"
STATE: Final = DIRECTORY / "state.json"
_TEST_TIMEOUT_S: Final = 3_600
"""The timeout of one test: some work for minutes, and for much longer on a busy machine."""


@dataclass
class Progress:
    """How far a run has come.

    Attributes:
        seed: that of the first round; each later one has one more.
        done: rounds that are over.
        failed: the numbers of those in which a test has failed.
    """

    seed: int
    done: int = 0
    failed: list[int] = field(default_factory=list)


def read_progress(seed: int | None, rounds: int) -> Progress:
    """Return where to go on: at the beginning, if nothing is under way.

    Args:
        seed: the one that is wanted, None for any.
        rounds: how many there are to be.
    """
    if STATE.exists():
        state = Progress(**json.loads(STATE.read_text()))
        if seed in (None, state.seed) and state.done < rounds:
            return state
    return Progress(secrets.randbelow(1 << 32) + 1 if seed is None else seed)


def run_round(number: int, seed: int) -> bool:
    """Run all tests once; return whether all have passed.

    Args:
        number: of the round, from 1 on.
        seed: of its chances.
    """
    log = DIRECTORY / f"round-{number}.log"
    command = (
        *(sys.executable, "-m", "pytest", "-n", "auto", "--long", "-m", "long or hypothesis"),
        f"--hypothesis-seed={seed}",
        f"--timeout={_TEST_TIMEOUT_S}",
    )
    environment = os.environ | {"AMPERAGE_SEED": str(seed)}
    for name in ("CI", "PYTHONDONTWRITEBYTECODE"):  # in CI, hypothesis makes the same examples
        environment.pop(name, None)
    with log.open("w") as file:
        code = subprocess.call(command, cwd=ROOT, env=environment, stdout=file, stderr=file)
    print(f"round {number}, seed {seed}: {'passed' if code == 0 else f'failed, see {log}'}")
    return code == 0


def main(arguments: Sequence[str]) -> int:
    """Run the rounds that are left; return 1 if a test has failed in any of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=60, help="how many (60)")
    parser.add_argument("--seed", type=int, help="of the first one, 1 or more; chosen without it")
    options = parser.parse_args(arguments)
    if options.seed is not None and options.seed < 1:
        parser.error("--seed is 1 or more")
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    state = read_progress(options.seed, options.rounds)
    print(f"{options.rounds} rounds, of which {state.done} are done, from seed {state.seed} on")
    STATE.write_text(json.dumps(asdict(state)))
    while state.done < options.rounds:
        if not run_round(state.done + 1, state.seed + state.done):
            state.failed.append(state.done + 1)
        state.done += 1
        STATE.write_text(json.dumps(asdict(state)))
    print(f"failed: {', '.join(map(str, state.failed)) or 'none'}")
    return 1 if state.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
