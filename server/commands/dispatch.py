"""Which commands there are, and which a session accepts in its state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from msgspec.structs import replace

from amperage.wire.header import Header, command_name, encode_header
from server.base.limits import (
    MOST_ACKS,
    MOST_IDS,
    MOST_KEYS,
    MOST_KEYS_OF_SUBSCRIPTION,
    MOST_OPTIONS,
    MOST_ORDER_TERMS,
    MOST_SUBSCRIPTIONS,
)
from server.commands import (
    flush,
    heartbeat,
    logon,
    publish,
    queue_acks,
    sow,
    sow_and_subscribe,
    sow_delete,
    subscribe,
    subscribing,
    timer,
    unsubscribe,
)
from server.commands.acks import NOT_READABLE, acknowledge, acks_among
from server.commands.memory import check_memory
from server.commands.refusal import CommandRefused
from server.commands.refuse import refuse
from server.sow.store import StoreError

if TYPE_CHECKING:
    from server.commands.plain_acks import PlainAcks
    from server.commands.publish_runs import PublishRuns
    from server.commands.steps import Steps
    from server.subscriptions.subscription import Subscription


class Surroundings(subscribing.Surroundings, logon.Surroundings, Protocol):
    """What commands of all kinds need."""


class Connection(
    subscribing.Subscribing, unsubscribe.Unsubscribing, heartbeat.Beating, logon.Arriving, Protocol
):
    """A connection that sends commands of all kinds."""

    @property
    def engine(self) -> Surroundings:
        """What stands around it."""

    @property
    def subscriptions(self) -> Mapping[str, Subscription]:
        """Its subscriptions by id."""

    @property
    def logged_on(self) -> bool:
        """Whether the client has said who it is."""

    @property
    def memory_of_commands(self) -> int:
        """Bytes that its subscriptions and queries take."""

    @property
    def runs(self) -> PublishRuns:
        """The publishes that go by in runs."""

    @property
    def plain_acks(self) -> PlainAcks:
        """The acknowledgements that need no decoding."""


Handler = Callable[["Connection", Header, bytes], "Steps | None"]
"""Carries a command out; or gives the steps in which that is done, where it may take long."""

BEFORE_LOGON: Final[Mapping[str, Handler]] = {
    "heartbeat": heartbeat.handle,
    "logon": logon.handle,
}

AFTER_LOGON: Final[Mapping[str, Handler]] = {
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
"""What is not worth doing for a peer that has gone."""

_LONGEST_NAME: Final = 32  # of a command; those that are none may be longer

_TRACE_IDS: Final = {"logon": "12-0010", "publish": "12-0001", "p": "12-0001"}
_OTHER_TRACE_ID: Final = "12-0002"


def execute(session: Connection, header: Header, body: bytes, exact_header: bytes | None) -> None:
    """Carry out one command of a session, or refuse it.

    Args:
        session: the connection that sent it.
        header: its header.
        body: its body.
        exact_header: the bytes that say all that the header says, so that the next command with
            the same bytes is the same command; None where they do not.
    """
    session.command = header.command[:_LONGEST_NAME]
    _trace(session, header, body)
    if session.told:
        _has_heard(session)
    try:
        if session.logged_on:
            steps = _execute_after_logon(session, header, body, exact_header)
        elif header.command in BEFORE_LOGON:
            acknowledge(session, header, "received")
            steps = BEFORE_LOGON[header.command](session, header, body)
        elif header.command in AFTER_LOGON:
            steps = _execute_instead_of_logon(session, header, body)
        else:
            raise _unknown(header)
        if steps is not None and next(steps, None) is not None:
            session.intake.finish(_finish(session, header, steps))
    except (CommandRefused, StoreError) as error:
        _answer(session, header, error)


def _has_heard(session: Connection) -> None:
    """Take note that a publisher knows what it has been told at its logon: it goes on."""
    told, session.told = session.told, ()
    log = session.engine.transaction_log
    if log is not None:
        log.refusals.heard(session.client_hash, told)


def _execute_instead_of_logon(session: Connection, header: Header, body: bytes) -> Steps:
    yield from logon.log_on_implicitly(session)
    steps = _execute_after_logon(session, header, body, None)
    if steps is not None:
        yield from steps


def _finish(session: Connection, header: Header, steps: Steps) -> Steps:
    """Go on with a command, or refuse it after all."""
    try:
        yield from steps
    except (CommandRefused, StoreError) as error:
        _answer(session, header, error)


def _answer(session: Connection, header: Header, error: CommandRefused | StoreError) -> None:
    if isinstance(error, StoreError):
        refuse(session, header, NOT_READABLE, str(error))
        return
    refuse(session, header, error.reason, error.detail)
    if error.disconnect is not None:
        session.close(error.disconnect)


def _execute_after_logon(
    session: Connection, header: Header, body: bytes, exact_header: bytes | None
) -> Steps | None:
    handler = AFTER_LOGON.get(header.command)
    if handler is None:
        if header.command in BEFORE_LOGON:
            raise CommandRefused("already logged on", "a connection can log on only once")
        raise _unknown(header)
    if session.intake.is_lost and handler in _FOR_THE_PEER_ALONE:
        return None
    has_enough = len(session.subscriptions) >= MOST_SUBSCRIPTIONS
    if handler is subscribe.handle and not has_enough and subscribe.repeat(session, header):
        return None
    acknowledge(session, header, "received")
    if handler in _SUBSCRIBING and has_enough:
        _refuse_more_subscriptions(session, header)
    if handler in _FOR_THE_PEER_ALONE:
        check_memory(session, header)
    if handler is not publish.handle:
        _refuse_long_lists(header)
    steps = handler(session, header, body)
    if exact_header is not None:
        _remember(session, header, exact_header)
    return steps


def _remember(session: Connection, header: Header, exact_header: bytes) -> None:
    """Recognise headers that say the same as one that has been read, if it is a plain one."""
    handler = AFTER_LOGON[header.command]
    if handler is publish.handle:
        topic = publish.plain_target(session, header)
        if topic is not None:
            acks = acks_among(header, publish.ACKS)
            session.runs.remember(exact_header, header, topic, acks)
    elif handler is sow_delete.handle:
        session.plain_acks.remember(exact_header, header)


def _refuse_long_lists(header: Header) -> None:
    """Refuse a command that names more than can be dealt with in one go.

    Raises:
        CommandRefused: it does.
    """
    most_keys = MOST_KEYS_OF_SUBSCRIPTION if "subscribe" in header.command else MOST_KEYS
    for name, text, most in (
        ("sow_keys", header.sow_keys, most_keys),
        ("sub_id", header.sub_id, MOST_IDS),
        ("query_id", header.query_id, MOST_IDS),
        ("orderby", header.order_by, MOST_ORDER_TERMS),
        ("ack type", header.acks, MOST_ACKS),
    ):
        if text is not None and len(text) > most and text.count(",") >= most:
            raise CommandRefused(
                "limit exceeded",
                f"header {name} has {text.count(',') + 1} entries: expected no more than {most}",
            )
    if header.options is not None and len(header.options) > MOST_OPTIONS:
        raise CommandRefused(
            "limit exceeded",
            f"the options are longer than {MOST_OPTIONS} characters",
        )


def _refuse_more_subscriptions(session: Connection, header: Header) -> None:
    """Refuse a subscription beyond the limit, unless it takes the place of another.

    Raises:
        CommandRefused: it does not.
    """
    if header.sub_id not in session.subscriptions:
        raise CommandRefused(
            "limit exceeded",
            f"a connection may have {MOST_SUBSCRIPTIONS} subscriptions: use fewer with regular"
            " expressions or filters, or more connections",
        )


def _unknown(header: Header) -> CommandRefused:
    return CommandRefused(
        "unknown command",
        f"{header.command!r} is no command of the amps protocol",
        disconnect="unknown command",
    )


def _trace(session: Connection, header: Header, body: bytes) -> None:
    log = session.engine.log
    message_id = _TRACE_IDS.get(header.command, _OTHER_TRACE_ID)
    if log.enabled(message_id):
        shown = header if header.password is None else replace(header, password="***")  # noqa: S106 - hides one
        log.emit(
            message_id,
            client=session.client_name,
            command=command_name(header.command),
            header=encode_header(shown),
            body=body,
        )
