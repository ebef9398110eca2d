"""One subscription of one connection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from server.expressions.tree import Expr
    from server.session import Session
    from server.topics.names import TopicSelector


@dataclass(frozen=True, slots=True, eq=False)
class Subscription:
    """What a subscriber asked for. Replacing a subscription makes a new one with the same id.

    Attributes:
        session: the connection that subscribed.
        sub_id: its id, unique within the connection.
        selector: the topics that it is for.
        filter: what messages must match, None for all.
    """

    session: Session
    sub_id: str
    selector: TopicSelector
    filter: Expr | None
