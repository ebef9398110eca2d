"""What a subscription or a query takes in memory, for which its client has to answer.

What is kept follows what the command says: trees and programs of its filter, its SOW keys, its
bookmarks, the fields of its options. It is estimated from the text of the command, before that is
read any further: what there is of a filter follows its fields, each of which stands in a comparison
or a call, and the values of its lists. Equal filters are kept once, but count for each who has one.
It counts against what the client may take
(server/subscriptions/slow_clients.py) until the subscription or query has ended, and there is a
limit to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from server.base.limits import MOST_FILTER, MOST_MEMORY
from server.commands.refusal import CommandRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from amperage.wire.header import Header
    from server.subscriptions.subscription import Subscription

_COMMAND: Final = 2048
_FIELD: Final = 2000
_VALUE: Final = 300
_FILTER: Final = 8
_TOPIC: Final = 16
_LISTS: Final = 16
"""Bytes for a command, for each field and value of its filter, and each character of its parts."""


class Keeping(Protocol):
    """A connection for which something is kept."""

    @property
    def subscriptions(self) -> Mapping[str, Subscription]:
        """Its subscriptions by id."""

    @property
    def memory_of_commands(self) -> int:
        """Bytes that its subscriptions and queries take."""


def memory_of(header: Header) -> int:
    """About how many bytes are kept while what a command has begun is under way.

    Args:
        header: the command's header. A filter that is too long counts as the longest that is
            accepted: it is refused for its length, and not kept.
    """
    lists = (header.options, header.sow_keys, header.bookmark, header.order_by)
    return (
        _COMMAND
        + memory_of_filter(header.filter)
        + _TOPIC * len(header.topic or "")
        + _LISTS * sum(len(text) for text in lists if text)
    )


def memory_of_filter(text: str | None) -> int:
    """The part of `memory_of` that follows a command's filter."""
    if text is None:
        return 0
    text = text[:MOST_FILTER]
    return _FILTER * len(text) + _FIELD * text.count("/") + _VALUE * text.count(",")


def may_take(session: Keeping, more: int) -> bool:
    """Whether so many bytes more may be kept for a client."""
    return session.memory_of_commands + more <= MOST_MEMORY


def check_memory(session: Keeping, header: Header) -> None:
    """Refuse a command for which too much would be kept, with what is kept for its client already.

    Args:
        session: the connection that sent it.
        header: its header.

    Raises:
        CommandRefused: it would be too much.
    """
    replaced = session.subscriptions.get(header.sub_id or header.command_id or "")
    if not may_take(session, memory_of(header) - (0 if replaced is None else replaced.memory)):
        raise CommandRefused(
            "limit exceeded",
            f"the subscriptions and queries of a connection may take {MOST_MEMORY} bytes of memory:"
            " expected shorter filters and lists, or fewer of them",
        )
