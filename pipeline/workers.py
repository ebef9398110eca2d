"""What Spark's Python processes pay for each task.

Spark collects garbage in a process after every task, which walks through everything that all
imported modules have made: some 25 ms, as much as reading 40,000 messages.
"""

from __future__ import annotations

import gc
from functools import cache


@cache
def settle() -> None:
    """Set aside what this process has made so far; called at the begin of a task, and acts once."""
    gc.collect()
    gc.freeze()
