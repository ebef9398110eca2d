"""amps-action-do-vacuum-statistics: kept for old configurations, where it is a step like any other.

Source: AMPS User Guide, Truncate Statistics.
"""

from actions.do_nothing import DoNothing


class DoVacuumStatistics(DoNothing):
    """Does nothing, as in AMPS since it was deprecated."""
