"""subscribe with the option count: the number of messages that a replay would send.

AMPS has no such option. A client that reads the log in parts, with many readers, must know where
the parts end before it reads the first one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from server.engine.commands.acks import acknowledge
from server.engine.commands.bookmark_subscribe import (
    is_replayed,
    read_bookmark,
    read_not_found,
    replayed_topics,
    wants_deletions,
)
from server.engine.commands.errors import CommandRefusedError
from server.engine.commands.parsing.options import check_count_options, option_refusal
from server.engine.commands.parsing.topic_selection import read_filter, read_topic, require_topic
from server.engine.replays.replay_counter import CountTerms, MessageSizeSink, ReplayCounter
from server.expressions.filter_form import content_filter_of
from server.security.deferred import AnswerFuture, decided
from server.security.permissions import Permission
from server.storage.journal import BookmarkError, JournalUnreadableError
from server.topics.subscriptions.subscription import Subscription, SubscriptionTerms

if TYPE_CHECKING:
    from amperage.wire.header import Header
    from server.engine.commands.continuation import CommandSteps
    from server.engine.session import Session
    from server.topics.transaction_log import BookmarkResolution, TransactionLog

_MAX_PARTS: Final = 1_000
_MAX_DIGITS: Final = 18


def is_requested(options: Mapping[str, str]) -> bool:
    """Return whether a subscribe command requests a count."""
    return "count" in options


def count(session: Session, header: Header, options: Mapping[str, str]) -> CommandSteps:
    """Count the messages that a replay would send; no subscription is placed.

    The `processed` ack is sent when the bookmark has been found, `completed` with the result.

    Raises:
        CommandRefusedError: the topic is not in the log, or the user may not read it; or the
            bookmark or an option cannot be used.
    """
    selector = read_topic(session, header, options)
    require_topic(session, Permission.READ_TOPIC, selector)
    log = session.engine.transaction_log
    if header.bookmark is None or log is None or not is_replayed(session, selector):
        raise option_refusal("count", "only messages of a transaction log can be counted")
    check_count_options(header, options)
    sink = MessageSizeSink()
    subscription = Subscription(
        session,
        session.make_sub_id(),
        SubscriptionTerms(
            replayed_topics(session, selector),
            sink=sink,
            sends_deletions=wants_deletions(session, header, options, selector),
        ),
        content_filter_of(read_filter(session, header)),
    )
    terms = CountTerms(header.top_n, _number(options, "count_bytes"), _parts(options))
    if terms.max_messages == 0:
        raise CommandRefusedError(
            "invalid option", "top_n is a number of messages to count: 1 or more"
        )
    pending: AnswerFuture[BookmarkResolution] = AnswerFuture()
    log.resolve_bookmark(
        session.number, read_bookmark(header), read_not_found(options), pending.set_result
    )
    position: BookmarkResolution = yield from decided(pending)  # type: ignore[arg-type]  # mypy takes apart the union
    if isinstance(position, BookmarkError):
        raise CommandRefusedError("bookmark not found", str(position))
    acknowledge(session, header, "processed")
    if log.journal.write_error is None:  # wait until messages of earlier commands are readable
        readable: AnswerFuture[None] = AnswerFuture()
        log.when_durable(partial(readable.set_result, None))
        yield from decided(readable)  # type: ignore[arg-type]  # as above
    tail = session.engine.fully_durable_tail if "fully_durable" in options else session.engine.tail
    counter = ReplayCounter(session, log, subscription, sink, position, tail.horizon(), terms)
    try:
        for _ in counter.run():
            yield True
    except JournalUnreadableError as error:
        raise CommandRefusedError(
            "replay failed", f"the transaction log cannot be read: {error}"
        ) from None
    _send_result(session, header, log, counter)


def _send_result(
    session: Session, header: Header, log: TransactionLog, counter: ReplayCounter
) -> None:
    """Send the `completed` ack with the counts and their bookmarks."""

    def bookmark_of(txid: int) -> str:
        log_number, reached = log.journal.position_bookmark(txid)
        return f"{log_number}|{reached}|"

    parts = "".join(f"{bookmark_of(txid)}:{rows}," for txid, rows in counter.divide_into_parts())
    result_options = [
        f"places=[{bookmark_of(counter.end_txid)}]",
        f"begin={bookmark_of(counter.begin_txid)}",
        f"bytes={counter.byte_count}",
        f"oldest={counter.oldest_us}",
        f"parts=[{parts.rstrip(',')}]",
    ]
    if counter.last_removed is not None:
        result_options.append(
            f"lost=[{bookmark_of(counter.last_removed.txid)}:{counter.last_removed.timestamp}]"
        )
    if not counter.is_complete:
        result_options.append("more")
    acknowledge(
        session,
        header,
        "completed",
        matches=counter.message_count,
        long_options=",".join(result_options),
    )


def _parts(options: Mapping[str, str]) -> int:
    parts = _number(options, "count_parts") or 1
    if parts > _MAX_PARTS:
        raise option_refusal("count_parts", f"expected no more than {_MAX_PARTS}")
    return parts


def _number(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS) or int(text) < 1:
        raise option_refusal(name, "expected a whole number from 1")
    return int(text)
