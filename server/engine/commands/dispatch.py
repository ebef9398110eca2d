"""Dispatches commands: the table of all commands, and of those accepted in each session state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from amperage.wire.header import Header, command_name, encode_header
from server.engine.commands import (
    flush,
    heartbeat,
    logon,
    publish,
    queue_acks,
    sow,
    sow_and_subscribe,
    sow_delete,
    subscribe,
    timer,
    unsubscribe,
)
from server.engine.commands.acks import NOT_READABLE, acknowledge, acks_among
from server.engine.commands.errors import CommandRefusedError
from server.engine.commands.failure_acks import refuse
from server.engine.commands.memory_account import check_memory
from server.storage.sow.store import RecordStoreError
from server.util.limits import (
    MAX_ACK_TYPES,
    MAX_OPTIONS_LENGTH,
    MAX_ORDER_TERMS,
    MAX_SOW_KEYS,
    MAX_SUBSCRIPTION_IDS,
    MAX_SUBSCRIPTION_SOW_KEYS,
    MAX_SUBSCRIPTIONS,
)

if TYPE_CHECKING:
    from server.engine.commands.continuation import CommandSteps
    from server.engine.session import Session


CommandHandler = Callable[["Session", Header, bytes], "CommandSteps | None"]
"""Executes a command, or returns the steps to execute it, where that may take long."""

BEFORE_LOGON: Final[Mapping[str, CommandHandler]] = {
    "heartbeat": heartbeat.handle,
    "logon": logon.handle,
}

AFTER_LOGON: Final[Mapping[str, CommandHandler]] = {
    "publish": publish.handle,
    "p": publish.handle,
    "delta_publish": publish.handle,
    "subscribe": subscribe.handle,
    "delta_subscribe": subscribe.handle,
    "sow": sow.handle,
    "sow_and_subscribe": sow_and_subscribe.handle,
    "sow_and_delta_subscribe": sow_and_subscribe.handle,
    "sow_delete": sow_delete.handle,
    "ack": queue_acks.handle,
    "unsubscribe": unsubscribe.handle,
    "flush": flush.handle,
    "heartbeat": heartbeat.handle,
    "start_timer": timer.handle,
    "stop_timer": timer.handle,
}

_SUBSCRIBING: Final = (subscribe.handle, sow_and_subscribe.handle)

_FOR_THE_PEER_ALONE: Final = (sow.handle, *_SUBSCRIBING)
"""Commands that are not worth executing for a peer that has disconnected."""

_MAX_NAME_LENGTH: Final = 32  # of a command; unknown commands may be longer

_TRACE_IDS: Final = {"logon": "12-0010", "publish": "12-0001", "p": "12-0001"}
_OTHER_TRACE_ID: Final = "12-0002"


def execute(session: Session, header: Header, body: bytes, exact_header: bytes | None) -> None:
    """Execute a command of a session, or refuse it.

    Args:
        session: the connection that sent it.
        header: its header.
        body: its body.
        exact_header: the header's bytes, if they contain the complete header. The next
            command with the same bytes is then the same command. None if they do not.
    """
    session.command = header.command[:_MAX_NAME_LENGTH]
    _trace(session, header, body)
    if session.reported_gaps:
        _clear_reported_gaps(session)
    try:
        if session.is_logged_on:
            steps = _execute_after_logon(session, header, body, exact_header)
        elif header.command in BEFORE_LOGON:
            acknowledge(session, header, "received")
            steps = BEFORE_LOGON[header.command](session, header, body)
        elif header.command in AFTER_LOGON:
            steps = _execute_instead_of_logon(session, header, body)
        else:
            raise _unknown(header)
        if steps is not None and next(steps, None) is not None:
            session.input.continue_in_steps(_finish(session, header, steps))
    except (CommandRefusedError, RecordStoreError) as error:
        _answer(session, header, error)


def _clear_reported_gaps(session: Session) -> None:
    """Record that a publisher has received its logon's refusals: it has sent a command since."""
    reported_gaps, session.reported_gaps = session.reported_gaps, ()
    log = session.engine.transaction_log
    if log is not None:
        log.refused_sequences.record_reported(session.client_hash, reported_gaps)


def _execute_instead_of_logon(session: Session, header: Header, body: bytes) -> CommandSteps:
    yield from logon.log_on_implicitly(session)
    steps = _execute_after_logon(session, header, body, None)
    if steps is not None:
        yield from steps


def _finish(session: Session, header: Header, steps: CommandSteps) -> CommandSteps:
    """Execute the remaining steps of a command, or refuse it after all."""
    try:
        yield from steps
    except (CommandRefusedError, RecordStoreError) as error:
        _answer(session, header, error)


def _answer(
    session: Session, header: Header, error: CommandRefusedError | RecordStoreError
) -> None:
    if isinstance(error, RecordStoreError):
        refuse(session, header, NOT_READABLE, str(error))
        return
    refuse(session, header, error.reason, error.detail)
    if error.disconnect_reason is not None:
        session.close(error.disconnect_reason)


def _execute_after_logon(
    session: Session, header: Header, body: bytes, exact_header: bytes | None
) -> CommandSteps | None:
    handler = AFTER_LOGON.get(header.command)
    if handler is None:
        if header.command in BEFORE_LOGON:
            raise CommandRefusedError("already logged on", "a connection can log on only once")
        raise _unknown(header)
    if session.input.is_connection_lost and handler in _FOR_THE_PEER_ALONE:
        return None
    is_at_limit = len(session.subscriptions) >= MAX_SUBSCRIPTIONS
    if handler is subscribe.handle and not is_at_limit and subscribe.try_fast_path(session, header):
        return None
    acknowledge(session, header, "received")
    if handler in _SUBSCRIBING and is_at_limit:
        _refuse_more_subscriptions(session, header)
    if handler in _FOR_THE_PEER_ALONE:
        check_memory(session, header)
    if handler is not publish.handle:
        _refuse_long_lists(header)
    steps = handler(session, header, body)
    if exact_header is not None:
        _cache_header(session, header, exact_header)
    return steps


def _cache_header(session: Session, header: Header, exact_header: bytes) -> None:
    """Remember a plain header for the fast path of publishes or acknowledgements."""
    handler = AFTER_LOGON[header.command]
    if handler is publish.handle:
        topic = publish.plain_target(session, header)
        if topic is not None:
            acks = acks_among(header, publish.ACKS)
            session.publish_batcher.cache_header(exact_header, header, topic, acks)
    elif handler is sow_delete.handle:
        session.ack_header_cache.add_header(exact_header, header)
        deleted = sow_delete.plain_target(session, header)
        if deleted is not None:
            acks = acks_among(header, sow_delete.ACKS)
            session.publish_batcher.cache_header(exact_header, header, deleted, acks)


def _refuse_long_lists(header: Header) -> None:
    """Refuse a command with more list entries than one time slice can process.

    Raises:
        CommandRefusedError: it has more.
    """
    max_keys = MAX_SUBSCRIPTION_SOW_KEYS if "subscribe" in header.command else MAX_SOW_KEYS
    for name, text, limit in (
        ("sow_keys", header.sow_keys, max_keys),
        ("sub_id", header.sub_id, MAX_SUBSCRIPTION_IDS),
        ("query_id", header.query_id, MAX_SUBSCRIPTION_IDS),
        ("orderby", header.order_by, MAX_ORDER_TERMS),
        ("ack type", header.acks, MAX_ACK_TYPES),
    ):
        if text is not None and len(text) > limit and text.count(",") >= limit:
            raise CommandRefusedError(
                "limit exceeded",
                f"header {name} has {text.count(',') + 1} entries: expected no more than {limit}",
            )
    if header.options is not None and len(header.options) > MAX_OPTIONS_LENGTH:
        raise CommandRefusedError(
            "limit exceeded",
            f"the options are longer than {MAX_OPTIONS_LENGTH} characters",
        )


def _refuse_more_subscriptions(session: Session, header: Header) -> None:
    """Refuse a subscription beyond the limit, unless it replaces another.

    Raises:
        CommandRefusedError: it does not.
    """
    if header.sub_id not in session.subscriptions:
        raise CommandRefusedError(
            "limit exceeded",
            f"a connection may have {MAX_SUBSCRIPTIONS} subscriptions: use fewer with regular"
            " expressions or filters, or more connections",
        )


def _unknown(header: Header) -> CommandRefusedError:
    return CommandRefusedError(
        "unknown command",
        f"{header.command!r} is no command of the amps protocol",
        disconnect_reason="unknown command",
    )


def _trace(session: Session, header: Header, body: bytes) -> None:
    log = session.engine.log
    message_id = _TRACE_IDS.get(header.command, _OTHER_TRACE_ID)
    if log.enabled(message_id):
        logged_header = header if header.password is None else replace(header, password="***")  # noqa: S106 - hides one
        log.emit(
            message_id,
            client=session.client_name,
            command=command_name(header.command),
            header=encode_header(logged_header),
            body=body,
        )
