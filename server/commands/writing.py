"""What a connection may publish to, and which messages.

Theory of operation. Where a permission is limited by a filter, what is published goes to a
`LimitedTopic`, which stands before the topic, keeps back what does not match, and hands on the rest
in its order. Whoever publishes does not know the difference, and where nothing is limited there is
none: the topic itself is published to. So a filter costs those alone who have one.

The filter is asked of messages as they come: before preprocessing and enrichment, and of a delta
itself, not of what it makes of a record. One that cannot be decided lets nothing pass.

Source: AMPS User Guide, Content Filtered Entitlements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from server.expressions.compile_message import compile_filter
from server.expressions.context import NO_CONTEXT
from server.expressions.effort import Allowance
from server.expressions.inference import as_read
from server.expressions.tree import paths
from server.security.permissions import Permission
from server.sow.record_context import asks_for_context
from server.subscriptions.rejection import Rejection

if TYPE_CHECKING:
    from server.commands.sender import Sender
    from server.expressions import Functions
    from server.expressions.context import MessageContext
    from server.expressions.tree import Expr
    from server.message_types.base import MessageType
    from server.security.permissions import Permit
    from server.sow.store import Settled
    from server.subscriptions.envelope import Envelope
    from server.topics.table import AnyTopic

NOT_ENTITLED: Final = "not entitled"

_MOST_KNOWN: Final = 1024
"""Limited topics that a connection keeps."""


class Publishable(Protocol):
    """What can be published to: a topic, or what stands before one."""

    @property
    def name(self) -> str:
        """The topic's name."""

    @property
    def keeps_messages(self) -> bool:
        """Whether messages go on stable storage."""

    @property
    def is_journaled(self) -> bool:
        """Whether messages are in the transaction log."""

    @property
    def takes_places(self) -> bool:
        """Whether bodies may be places in what was read, of which nothing is kept."""

    @property
    def takes_marks(self) -> bool:
        """Whether messages of a run may have correlation ids and lifetimes of their own."""

    def publish(self, bodies: Sequence[bytes], envelope: Envelope) -> Sequence[Rejection]:
        """Publish messages. See `Topic.publish`."""

    def when_stored(self, then: Settled) -> None:
        """Call back when everything published so far is settled."""


OnRefusal = Callable[["Envelope", int], None]
"""Told that the message at a position of those with an envelope is refused."""


class LimitedTopic:
    """A topic to which some messages may be published only.

    Args:
        topic: the topic.
        message_type: how bodies are read.
        permitted: what messages have to match.
        functions: what that may call.
        on_refusal: told of each message that is refused, before those behind it are published.

    Attributes:
        topic: see above.
        name: its name.
        keeps_messages: whether messages go on stable storage.
        is_journaled: whether messages are in the transaction log.
        takes_places: no, each body is looked at by itself.
        takes_marks: no, a run of messages may be divided.
        when_stored: calls back when everything published so far is settled.
    """

    def __init__(
        self,
        topic: AnyTopic,
        message_type: MessageType,
        permitted: Expr,
        functions: Functions,
        on_refusal: OnRefusal,
    ) -> None:
        self.topic: Final = topic
        self.name: Final = topic.name
        self.keeps_messages: Final = topic.keeps_messages
        self.is_journaled: Final = topic.is_journaled
        self.takes_places: Final = False
        self.takes_marks: Final = False
        self.when_stored: Final = topic.when_stored
        self._effort: Final = Allowance()
        self._extract: Final = message_type.extractor(paths(permitted))
        read = as_read(permitted, message_type)
        self._matches: Final = compile_filter(read, functions, effort=self._effort)
        self._asks: Final = asks_for_context(permitted, functions)
        self._on_refusal: Final = on_refusal

    def publish(self, bodies: Sequence[bytes], envelope: Envelope) -> Sequence[Rejection]:
        """Publish those of some messages that may be published. See `Topic.publish`."""
        refused = list(self._refused(bodies, envelope))
        if not refused:
            return self.topic.publish(bodies, envelope)
        return list(self._publish_others(bodies, envelope, refused))

    def problem(self, body: bytes, context: MessageContext) -> str:
        """Why a message may not be published; empty if it may.

        Args:
            body: the message.
            context: what can be asked about it besides its fields.
        """
        self._effort.renew()
        try:
            if self._matches(self._extract(body), context):
                return ""
        except Exception as error:  # whatever it is, what cannot be decided is not allowed
            return f"it cannot be decided whether the user may publish it: {error}"
        return "the user may publish other messages only"

    def _refused(self, bodies: Sequence[bytes], envelope: Envelope) -> Iterator[Rejection]:
        context = NO_CONTEXT
        for position, body in enumerate(bodies):
            if self._asks:
                context = envelope.context(self.name, body)
            problem = self.problem(body, context)
            if problem:
                yield Rejection(position, NOT_ENTITLED, f"topic {self.name!r}: {problem}")

    def _publish_others(
        self, bodies: Sequence[bytes], envelope: Envelope, refused: Sequence[Rejection]
    ) -> Iterator[Rejection]:
        """Publish what stands between messages that are refused, each in its place."""
        start = 0
        for rejection in refused:
            yield from self._publish_some(bodies, envelope, start, rejection.position)
            self._on_refusal(envelope, rejection.position)
            yield rejection
            start = rejection.position + 1
        yield from self._publish_some(bodies, envelope, start, len(bodies))

    def _publish_some(
        self, bodies: Sequence[bytes], envelope: Envelope, start: int, end: int
    ) -> Iterator[Rejection]:
        if start < end:
            some = copy(envelope)
            some.sequences = envelope.sequences[start:end]
            for rejection in self.topic.publish(bodies[start:end], some):
                yield rejection._replace(position=rejection.position + start)


class _Known(NamedTuple):
    """A limited topic, and the permit that it was made for."""

    permit: Permit
    topic: LimitedTopic


class Writing:
    """What one connection publishes to.

    Args:
        session: the connection.
    """

    __slots__ = ("_known", "_session")

    def __init__(self, session: Sender) -> None:
        self._session = session
        self._known: dict[str, _Known] = {}

    def topic(self, name: str) -> Publishable:
        """Where messages for a topic go.

        Raises:
            CommandRefused: the user may not publish to it.
        """
        session = self._session
        permit = session.require(Permission.WRITE_TOPIC, name)
        topic = session.find_topic(name)
        if permit.filter is None:
            return topic
        known = self._known.get(name)
        if known is None or known.permit is not permit or known.topic.topic is not topic:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            limited = LimitedTopic(
                topic,
                topic.message_type,
                permit.filter,
                session.engine.settings.functions,
                partial(self._note_refusal, name),
            )
            known = self._known[name] = _Known(permit, limited)
        return known.topic

    def may(self, name: str, body: bytes, context: MessageContext) -> bool:
        """Whether the user may publish a message that somebody has published before.

        Args:
            name: the topic.
            body: the message.
            context: what can be asked about it besides its fields.
        """
        if not self._session.may(Permission.WRITE_TOPIC, name):
            return False
        topic = self.topic(name)
        return not (isinstance(topic, LimitedTopic) and topic.problem(body, context))

    def _note_refusal(self, name: str, envelope: Envelope, position: int) -> None:
        """Take note that a message is not published; those behind it may be recorded."""
        session = self._session
        session.refused_write(name)
        log = session.engine.transaction_log
        sequence = envelope.sequences[position] if envelope.sequences else envelope.sequence
        if log is not None and sequence:
            log.refusals.refused(session.client_hash, sequence)
