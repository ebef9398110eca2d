"""How garbage is collected in a process that keeps millions of records and must not pause.

Objects go when the last reference to them does. Python's collector is for those that refer to each
other in circles: it walks through all containers there are, and whatever runs has to wait. The
dictionaries of a SOW topic with 1,000,000 records take it some 75 ms, at any moment, to find
nothing (`benchmarks/sow.py` shows it, and what is left).

So what exists at the end of the start is set aside and never walked through again. A dictionary
stays set aside while it grows, and what topics put into theirs later (texts, numbers and tuples of
these) is nothing that the collector would look at. Circles made afterwards, such as sessions, are
found as ever, but less often is looked for them: a block of records that a query parses is not
reason enough.
"""

from __future__ import annotations

import gc
from typing import Final

_THRESHOLDS: Final = (10_000, 10, 10)
"""New containers before the youngest are walked through, which then takes below 1 ms; and how often
that is done before older ones are."""


def begin() -> None:
    """Set aside what reading the modules has made; called first, which saves a start walking it."""
    gc.freeze()


def settle() -> None:
    """Set aside what there is; called when everything has been recovered and opened."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
