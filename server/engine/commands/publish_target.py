"""Write entitlement: the topics and messages that a connection may publish.

Theory of operation. Where a permission is limited by a filter, published messages go to a
`FilteredTopic` in front of the topic. It refuses messages that do not match, and passes the rest on
in their order. A publisher does not see the difference. Where nothing is limited, messages go to
the topic itself, so only users with a filter pay for it.

The filter is applied to messages as they arrive: before preprocessing and enrichment, and to a
delta itself, not to the record that results from it. A filter that cannot be decided refuses the
message.

Source: AMPS User Guide, Content Filtered Entitlements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from server.expressions.backends.compile_message import compile_filter
from server.expressions.inference import with_inferred_types
from server.expressions.message_context import NO_CONTEXT
from server.expressions.regex.budget import SearchAllowance
from server.expressions.tree import paths
from server.security.permissions import Permission
from server.storage.sow.record_context import asks_for_context
from server.topics.subscriptions.message_refusal import MessageRefusal

if TYPE_CHECKING:
    from server.engine.session import Session
    from server.expressions import Functions
    from server.expressions.message_context import MessageContext
    from server.expressions.tree import Expr
    from server.message_types.base import MessageType
    from server.security.permissions import Permit
    from server.storage.sow.store import StoreCallback
    from server.topics.subscriptions.delivery.envelope import Envelope
    from server.topics.topic_table import AnyTopic

NOT_ENTITLED: Final = "not entitled"

_MAX_KNOWN: Final = 1024
"""Limited topics that a connection caches."""


class PublishTarget(Protocol):
    """The target of a publish: a topic, or a `FilteredTopic` in front of one.

    It is a protocol because compiled code reads an attribute of a class that it knows in that
    class's own place, where the value of an interpreted subclass, such as a queue, is not.
    """

    @property
    def name(self) -> str:
        """The topic's name."""

    @property
    def is_persistent(self) -> bool:
        """True if messages go to stable storage."""

    @property
    def is_journaled(self) -> bool:
        """True if messages are recorded in the transaction log."""

    @property
    def accepts_slices(self) -> bool:
        """True if bodies may be slices of the read buffer, as the topic retains none of them."""

    @property
    def accepts_metadata(self) -> bool:
        """True if messages of a batch may have metadata of their own."""

    def publish(self, bodies: Sequence[bytes], envelope: Envelope) -> Sequence[MessageRefusal]:
        """Publish messages. See `Topic.publish`."""

    def when_settled(self, then: StoreCallback) -> None:
        """Call back when everything published so far is settled."""


OnRefusal = Callable[["Envelope", int], None]
"""Called with an envelope and the position of one of its messages, which is refused."""


class FilteredTopic:
    """A topic to which the user may publish matching messages only.

    Args:
        topic: the topic.
        message_type: the message type of bodies.
        permitted: the filter that messages have to match.
        functions: the functions that the filter may call.
        on_refusal: called for each refused message, before those behind it are published.

    Attributes:
        topic: see above.
        name: its name.
        is_persistent: whether messages go to stable storage.
        is_journaled: whether messages are recorded in the transaction log.
        accepts_slices: False: each body is tested by itself.
        accepts_metadata: False: a batch of messages may be divided.
        when_settled: calls back when everything published so far is settled.
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
        self.is_persistent: Final = topic.is_persistent
        self.is_journaled: Final = topic.is_journaled
        self.accepts_slices: Final = False
        self.accepts_metadata: Final = False
        self.when_settled: Final = topic.when_settled
        self._effort: Final = SearchAllowance()
        self._extract: Final = message_type.extractor(paths(permitted))
        read = with_inferred_types(permitted, message_type)
        self._matches: Final = compile_filter(read, functions, search_counter=self._effort)
        self._needs_context: Final = asks_for_context(permitted, functions)
        self._on_refusal: Final = on_refusal

    def publish(self, bodies: Sequence[bytes], envelope: Envelope) -> Sequence[MessageRefusal]:
        """Publish the permitted messages of a batch. See `Topic.publish`."""
        refused = list(self._find_refused(bodies, envelope))
        if not refused:
            return self.topic.publish(bodies, envelope)
        return list(self._publish_permitted(bodies, envelope, refused))

    def refusal_reason(self, body: bytes, context: MessageContext) -> str:
        """Return the reason why a message may not be published; empty if it may.

        Args:
            body: the message.
            context: the message's properties besides its fields.
        """
        self._effort.reset()
        try:
            if self._matches(self._extract(body), context):
                return ""
        except Exception as error:  # whatever the error, an undecided message is not allowed
            return f"it cannot be decided whether the user may publish it: {error}"
        return "the user may publish other messages only"

    def _find_refused(
        self, bodies: Sequence[bytes], envelope: Envelope
    ) -> Iterator[MessageRefusal]:
        context = NO_CONTEXT
        for position, body in enumerate(bodies):
            if self._needs_context:
                context = envelope.context(self.name, body)
            problem = self.refusal_reason(body, context)
            if problem:
                yield MessageRefusal(position, NOT_ENTITLED, f"topic {self.name!r}: {problem}")

    def _publish_permitted(
        self, bodies: Sequence[bytes], envelope: Envelope, refused: Sequence[MessageRefusal]
    ) -> Iterator[MessageRefusal]:
        """Publish the messages between refused ones, each in its place."""
        start = 0
        for refusal in refused:
            yield from self._publish_slice(bodies, envelope, start, refusal.position)
            self._on_refusal(envelope, refusal.position)
            yield refusal
            start = refusal.position + 1
        yield from self._publish_slice(bodies, envelope, start, len(bodies))

    def _publish_slice(
        self, bodies: Sequence[bytes], envelope: Envelope, start: int, end: int
    ) -> Iterator[MessageRefusal]:
        if start < end:
            part = envelope.part(range(start, end))
            for refusal in self.topic.publish(bodies[start:end], part):
                yield refusal._replace(position=refusal.position + start)


class _CachedTarget(NamedTuple):
    """A limited topic, and the permit that it was made for."""

    permit: Permit
    topic: FilteredTopic


class PublishTargets:
    """Finds the targets of one connection's publishes, and caches the limited ones.

    Args:
        session: the connection.
    """

    __slots__ = ("_cached_targets", "_session")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._cached_targets: dict[str, _CachedTarget] = {}

    def find_target(self, name: str) -> PublishTarget:
        """Return the target for messages to a topic.

        Raises:
            CommandRefusedError: the user may not publish to it.
        """
        session = self._session
        permit = session.require_permission(Permission.WRITE_TOPIC, name)
        topic = session.find_topic(name)
        if permit.filter is None:
            return topic
        known = self._cached_targets.get(name)
        if known is None or known.permit is not permit or known.topic.topic is not topic:
            if len(self._cached_targets) >= _MAX_KNOWN:
                self._cached_targets.clear()
            limited = FilteredTopic(
                topic,
                topic.message_type,
                permit.filter,
                session.engine.settings.functions,
                partial(self._record_refusal, name),
            )
            known = self._cached_targets[name] = _CachedTarget(permit, limited)
        return known.topic

    def may_publish(self, name: str, body: bytes, context: MessageContext) -> bool:
        """Return whether the user may publish a message that another client has published before.

        Args:
            name: the topic.
            body: the message.
            context: the message's properties besides its fields.
        """
        if not self._session.is_permitted(Permission.WRITE_TOPIC, name):
            return False
        topic = self.find_target(name)
        return not (isinstance(topic, FilteredTopic) and topic.refusal_reason(body, context))

    def _record_refusal(self, name: str, envelope: Envelope, position: int) -> None:
        """Count a refused message, and record its number, as numbers behind it may be recorded."""
        session = self._session
        session.record_refused_write(name)
        log = session.engine.transaction_log
        sequence = envelope.sequences[position] if envelope.sequences else envelope.sequence
        if log is not None and sequence:
            log.refused_sequences.record_refusal(session.client_hash, sequence)
