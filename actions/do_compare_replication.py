"""amps-action-do-compare-replication: compares the records of two instances.

It starts comparisons, and does not wait for their results, which are logged. Comparison and repair
are in `server/replication/anti_entropy/coordinator.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from actions.module import Step, StepError
from actions.options import optional, quantity, required
from config_schema.units import parse_bool

if TYPE_CHECKING:
    from actions.context import ActionContext
    from actions.step_options import StepOptions


class DoCompareReplication(Step):
    """Starts comparisons of records with those of other instances.

    It fails if there is nothing to compare: no such instance is connected, or none replicates
    such a topic here.
    """

    def __init__(self, options: StepOptions) -> None:
        super().__init__(options)
        self._peer = optional(options, "Peer")
        self._topic = optional(options, "Topic")
        self._repair = required(options, "Repair")

    async def run(self, context: ActionContext) -> None:
        """Start the comparisons.

        Raises:
            StepError: there is nothing to compare, or an option has an invalid value.
        """
        repair = quantity("Repair", self._repair, context, parse_bool)
        peer = None if self._peer is None else self._peer.expand_text(context)
        topic = None if self._topic is None else self._topic.expand_text(context)
        anti_entropy = self.services.anti_entropy
        if anti_entropy is None or not anti_entropy.compare(peer, topic, repair=repair):
            peer_text = "no connected instance" if peer is None else f"{peer}, which may be away,"
            topic_text = "topics with records" if topic is None else f"the topic {topic}"
            raise StepError(
                f"{peer_text} replicates {topic_text} to this one that it has records of itself"
            )
