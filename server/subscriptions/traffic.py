"""What leaves for clients, by where it comes from, for statistics.

What most messages are, deliveries of a publish to plain subscriptions, is not counted here: it is
what is left of all that outboxes count.
"""

from __future__ import annotations

from server.base.tally import Tally


class Traffic:
    """What leaves for clients.

    Attributes:
        answers: acks, heartbeats, and what else is no message.
        bookmark: messages from the transaction log.
        detached: what was held back to be conflated, cut into pages or aggregated.
        internal: messages for clients inside the server, which get them without a frame.
        queue: messages of queues.
        sow: results of queries.
    """

    def __init__(self) -> None:
        self.answers = Tally()
        self.bookmark = Tally()
        self.detached = Tally()
        self.internal = Tally()
        self.queue = Tally()
        self.sow = Tally()
