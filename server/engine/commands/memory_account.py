"""Memory accounting: the memory of a subscription or a query, which is charged to its client.

The memory in use depends on the command: trees and programs of its filter, its SOW keys, its
bookmarks, the fields of its options. It is estimated from the text of the command, before that is
parsed any further: the size of a filter depends on its fields, each of which is in a comparison or
a call, and on the values of its lists. Equal filters are stored once, but charged to each client
that has one. The estimate is charged against the client's limit
(server/topics/subscriptions/limits/slow_clients.py) until the subscription or query has ended, and
is itself limited.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from server.engine.commands.errors import CommandRefusedError
from server.util.limits import MAX_CLIENT_MEMORY, MAX_FILTER_LENGTH

if TYPE_CHECKING:
    from amperage.wire.header import Header
    from server.engine.session import Session

_COMMAND: Final = 2048
_FIELD: Final = 2000
_VALUE: Final = 300
_FILTER: Final = 8
_TOPIC: Final = 16
_LISTS: Final = 16
"""Bytes for a command, for each field and value of its filter, and each character of its parts."""


def memory_of(header: Header) -> int:
    """Return an estimate of the bytes in use while a subscription or query of a command runs.

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
    """Return the part of `memory_of` that depends on a command's filter."""
    if text is None:
        return 0
    text = text[:MAX_FILTER_LENGTH]
    return _FILTER * len(text) + _FIELD * text.count("/") + _VALUE * text.count(",")


def has_memory_for(session: Session, added_bytes: int) -> bool:
    """Return whether a number of further bytes may be charged to a client."""
    return session.command_memory + added_bytes <= MAX_CLIENT_MEMORY


def check_memory(session: Session, header: Header) -> None:
    """Refuse a command if its memory, added to that charged to its client already, is too much.

    Args:
        session: the connection that sent it.
        header: its header.

    Raises:
        CommandRefusedError: it is too much.
    """
    replaced = session.subscriptions.get(header.sub_id or header.command_id or "")
    if not has_memory_for(
        session, memory_of(header) - (0 if replaced is None else replaced.memory_bytes)
    ):
        raise CommandRefusedError(
            "limit exceeded",
            f"the subscriptions and queries of a connection may take {MAX_CLIENT_MEMORY} bytes of"
            " memory: expected shorter filters and lists, or fewer of them",
        )
