"""What is left to chance in tests, and how a run is repeated."""

from __future__ import annotations

import os
import random
from typing import Final

GIVEN_SEED: int = int(os.environ.get("AMPERAGE_SEED", "0"))
"""What makes a run the same as another one; 0: it is a run of its own."""


MOST_EXAMPLES: Final = "AMPERAGE_MOST_EXAMPLES"
"""The variable with the largest number of examples, where a test runs others in another form."""


def examples(count: int, usual: int = 10) -> int:
    """Return how many examples hypothesis, or a test of seeds, tries: `count` in `make test-long`.

    Args:
        count: the number for `make test-long`, which sets AMPERAGE_SEED.
        usual: the largest number for other runs.
    """
    if GIVEN_SEED:
        return count
    return min(count, usual, int(os.environ.get(MOST_EXAMPLES, count)))


def chance_of(part: object = 0) -> random.Random:
    """What is left to chance in a part of a test.

    Args:
        part: tells it from the other parts of the same run.
    """
    seed = GIVEN_SEED or random.randrange(1, 1 << 32)
    print(f"AMPERAGE_SEED={seed}")
    return random.Random(f"{seed}-{part}")
