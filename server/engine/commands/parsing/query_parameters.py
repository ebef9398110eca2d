"""The terms of a query: the parts that sow and the commands that query and subscribe share.

Sources: AMPS User Guide, Managing Result Sets; AMPS Command Reference, sow command.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from server.engine.commands.errors import CommandRefusedError
from server.engine.commands.parsing.options import option_refusal
from server.engine.commands.parsing.topic_selection import read_filter
from server.expressions import ExpressionError, parse_order_by

if TYPE_CHECKING:
    from amperage.wire.header import Header
    from server.engine.session import Session
    from server.expressions.tree import Expr, OrderTerm
    from server.storage.sow.history import HistoryPoint

_MAX_BATCH_SIZE: Final = 10_000


@dataclass(frozen=True, slots=True)
class QueryTerms:
    """The selection, number and order of the records that a query returns.

    Attributes:
        filter: the content filter, None for all records.
        keys: the SOW keys of the records, None for any.
        order_by: the order; none if empty.
        top_n: the maximum number of records, None for all.
        skip_n: the number of records to skip first, None if not given.
        batch_size: the maximum number of records in one frame.
        as_of: the point in the past that is queried; None for now.
    """

    filter: Expr | None
    keys: tuple[str, ...] | None
    order_by: tuple[OrderTerm, ...]
    top_n: int | None
    skip_n: int | None
    batch_size: int
    as_of: HistoryPoint | None = None


def read_query_terms(session: Session, header: Header, options: Mapping[str, str]) -> QueryTerms:
    """Read the terms of a query.

    Args:
        session: the connection that sent it.
        header: the command's header.
        options: its options, split.

    Raises:
        CommandRefusedError: a part of it cannot be used.
    """
    top_n = _count("top_n", options, header.top_n)
    skip_n = _count("skip_n", options, header.skip_n)
    if skip_n and top_n is None:
        raise option_refusal("skip_n", "it goes with top_n only")
    return QueryTerms(
        read_filter(session, header),
        read_keys(header),
        _order_by(header),
        top_n,
        skip_n,
        _batch_size(session, header),
    )


def _batch_size(session: Session, header: Header) -> int:
    """Return the number of records to send in one frame.

    Clients are known to request more than the limit; they read the number that each frame carries.
    """
    requested = 1 if header.batch_size is None else header.batch_size
    if requested < 1:
        raise CommandRefusedError(
            "invalid batch size", f"{requested} records: expected 1 to {_MAX_BATCH_SIZE}"
        )
    if requested > _MAX_BATCH_SIZE:
        session.log_once("16-0005", asked=requested, most=_MAX_BATCH_SIZE)
    return min(requested, _MAX_BATCH_SIZE)


def read_keys(header: Header) -> tuple[str, ...] | None:
    """Return the SOW keys that a command names, each once; None if it names none."""
    if not header.sow_keys:
        return None
    keys = (key for text in header.sow_keys.split(",") if (key := text.strip()))
    return tuple(dict.fromkeys(keys))


def _count(name: str, options: Mapping[str, str], header_value: int | None) -> int | None:
    """Return a number that is given as an option, or in a header key of its own."""
    text = options.get(name)
    if text is not None:
        if not (text.isascii() and text.isdigit()):
            raise option_refusal(name, f"expected a number of records and not {text!r}")
        return int(text)
    if header_value is not None and header_value < 0:
        raise option_refusal(name, f"expected a number of records and not {header_value}")
    return header_value


def _order_by(header: Header) -> tuple[OrderTerm, ...]:
    if not header.order_by or not header.order_by.strip():
        return ()
    try:
        return parse_order_by(header.order_by)
    except ExpressionError as error:
        raise CommandRefusedError("invalid orderby", str(error)) from None
