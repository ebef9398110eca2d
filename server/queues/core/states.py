"""The states of a message in a queue.

    enqueue --> AVAILABLE --deliver--> LEASED --ack--> GONE
                  ^  |                   |
                  |  +--expire, ack------|------------> GONE
                  +--lease ends, cancel--+
                  +<--DELAYED<--cancel---+      until the delay is over
                  +<--BEHIND            until the message before it with the same key is GONE
                  +<--FOREIGN           until this instance owns it
    BARRIER --all before it are GONE--> GONE
    AVAILABLE --deliver, at-most-once--> SENT --ack, disconnect--> GONE

The numbers are single bytes in a column; searches for AVAILABLE use it as a byte.
"""

from __future__ import annotations

from typing import Final

GONE: Final = 0
AVAILABLE: Final = 1
LEASED: Final = 2
DELAYED: Final = 3
BEHIND: Final = 4
FOREIGN: Final = 5
BARRIER: Final = 6
SENT: Final = 7  # has left the queue; counts in a backlog until it is acknowledged

STATES: Final = 8
NAMES: Final = (
    "gone",
    "available",
    "leased",
    "delayed",
    "behind its key",
    "owned elsewhere",
    "barrier",
    "sent",
)
