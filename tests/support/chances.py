"""What is left to chance in tests, and how a run is repeated."""

from __future__ import annotations

import os
import random

GIVEN_SEED: int = int(os.environ.get("AMPERAGE_SEED", "0"))
"""What makes a run the same as another one; 0: it is a run of its own."""


def examples(count: int, usual: int = 10) -> int:
    """Return how many examples hypothesis, or a test of seeds, tries: `count` in `make test-long`.

    Args:
        count: the number for `make test-long`, which sets AMPERAGE_SEED.
        usual: the largest number for other runs.
    """
    return count if GIVEN_SEED else min(count, usual)


def chance_of(part: object = 0) -> random.Random:
    """What is left to chance in a part of a test.

    Args:
        part: tells it from the other parts of the same run.
    """
    seed = GIVEN_SEED or random.randrange(1, 1 << 32)
    print(f"AMPERAGE_SEED={seed}")
    return random.Random(f"{seed}-{part}")
