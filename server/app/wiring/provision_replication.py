"""Makes an instance's replication, from its configuration, its log and its stored state.

A cursor of another instance is a position in a *stream*: the part of this log that is replicated
to a destination. So the name of a stream changes with the identity of the log, and with the
settings of a Destination that select messages; then the other instance reports its state anew.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from config_schema.spec import TopicSpec
from config_schema.topology import describe
from server.app.wiring.provision import ProvisionError
from server.expressions import ContextKind, parse, references
from server.expressions.backends.compile_message import compile_filter
from server.expressions.inference import with_inferred_types
from server.expressions.message_context import MessageContext
from server.message_types.base import BodyError
from server.replication.apply.applier import ReplicationApplier
from server.replication.apply.permissions import ApplyPermissions
from server.replication.core import ReplicationSender, Routes, TopicRoute
from server.replication.links.link_events import LinkDirection, link_name
from server.replication.links.replication_state import ReplicationDestination, ReplicationState
from server.replication.links.retention_log import DestinationRetentionLog
from server.replication.links.state_store import ReplicationStateStore, recover_replication_state
from server.storage.journal import EVENTS, JournalTopic, JournalUnreadableError, LogSpan
from server.topics.publish_tracker import PublishTracker

if TYPE_CHECKING:
    from config_schema.spec import DestinationSpec, InstanceSpec, ReplicatedTopicSpec
    from server.engine.engine import Engine
    from server.expressions import Functions
    from server.message_types.base import MessageType
    from server.replication.links.replication_state import RecoveredState
    from server.storage.journal import Journal, JournalCursor
    from server.topics.transaction_log import TransactionLog

_NONCE_BITS: Final = 62

FilterFailureCallback = Callable[[Exception], None]
"""Callback for a filter that raised an exception instead of returning a result."""


class JournalSource:
    """The journal with the interface that a sender uses.

    Args:
        journal: the journal.
        is_lost: see `SourceLog.is_lost`.
    """

    def __init__(self, journal: Journal, is_lost: Callable[[int], bool]) -> None:
        self._journal = journal
        self.is_lost = is_lost

    @property
    def first_txid(self) -> int:
        """See `SourceLog.first_txid`."""
        return self._journal.first_txid

    @property
    def durable_txid(self) -> int:
        """See `SourceLog.durable_txid`."""
        return self._journal.durable_txid

    def read_from(self, after: int, is_wanted: Callable[[JournalTopic], bool]) -> JournalCursor:
        """See `SourceLog.read_from`."""
        return self._journal.replay(LogSpan(after), is_wanted, EVENTS)


class ReplicationContentFilter:
    """The Filter of a Topic of a Destination; see `server.replication.core.RouteFilter`.

    A message that cannot be parsed does not match. Functions of the message get its topic and its
    size; all other properties are NULL.

    Args:
        text: the filter.
        message_type: parses the bodies.
        functions: the functions that it may call.
        on_failure: called when it fails; the message does not match then.
    """

    def __init__(
        self,
        text: str,
        message_type: MessageType,
        functions: Functions,
        on_failure: FilterFailureCallback,
    ) -> None:
        expr = parse(text, ContextKind.STABLE_FILTER, functions)
        layout = tuple(references(expr))
        self._extract = message_type.extractor([reference.path for reference in layout])
        self._test = compile_filter(with_inferred_types(expr, message_type), functions, layout)
        self._on_failure = on_failure

    def __call__(self, topic: JournalTopic, bodies: Sequence[bytes]) -> Sequence[bool]:
        """Return for each message whether it matches."""
        context = MessageContext()
        context.topic_name = topic.name
        return [self._matches(body, context) for body in bodies]

    def _matches(self, body: bytes, context: MessageContext) -> bool:
        context.message_size = len(body)
        try:
            return bool(self._test(self._extract(body), context))
        except BodyError:
            return False
        except Exception as error:  # a defect of one filter must not block the others
            self._on_failure(error)
            return False


def provision_replication(
    spec: InstanceSpec,
    engine: Engine,
    log: TransactionLog,
    check: Callable[[], None],
) -> tuple[ReplicationState, ReplicationStateStore] | None:
    """Make the replication of an instance.

    From then on publishers wait for other instances, journals are retained for them, and the state
    of replication is stored.

    Args:
        spec: the instance.
        engine: has the clock, and the time of the engine's thread.
        log: the transaction log, which has been recovered.
        check: called now and then; an exception that it raises ends the start.

    Returns:
        The replication, and the object that stores its state, to be closed with the instance; None
        if the instance takes no part in replication.

    Raises:
        ProvisionError: the log cannot be read.
    """
    description = describe(spec)
    if not description.replicates:
        return None
    where = spec.transaction_log or spec
    try:
        recovered = recover_replication_state(log.journal, check, engine.log)
    except JournalUnreadableError as problem:
        raise ProvisionError(where, f"TransactionLog: not recovered: {problem}") from None
    destinations = {
        destination_spec.name: _recover_destination(destination_spec, spec, engine, log, recovered)
        for destination_spec in spec.replication
    }
    permits = ApplyPermissions()
    recorder = ReplicationApplier(
        engine.topics,
        engine.settings.message_types,
        log,
        recovered.dedup_window,
        permits,
        engine.clock,
        engine.log,
        engine.message_tracer,
    )
    replication = ReplicationState(
        description,
        secrets.randbits(_NONCE_BITS),
        recovered,
        destinations,
        spec.tuning.min_sync_destinations or 0,
        recorder,
        permits,
        log,
        engine.clock,
        engine.scheduler.elapsed,
        engine.log,
    )
    log.use_replication_state(replication)
    log.journal.set_log_name(replication.log_id)
    log.publish_tracker = PublishTracker(
        recovered.dedup_window,
        recovered.recent_entries,
        recovered.watermarks,
        log.settled_txid,
        log.generated_identity,
    )
    for destination in destinations.values():
        hold_files(destination, replication, engine, log)
    state_store = ReplicationStateStore(
        replication,
        recorder.highest_sequences,
        log,
        engine.clock,
        engine.log,
        engine.scheduler.start_task,
    )
    return replication, state_store


def replicates(spec: InstanceSpec, message_type: str, name: str) -> bool:
    """Return whether an instance replicates a topic to any destination."""
    topic = JournalTopic(message_type, name)
    return any(
        TopicRoute(topic_spec.message_type, topic_spec.name).covers(topic)
        for destination in spec.replication
        for topic_spec in destination.topics
    )


def _recover_destination(
    destination: DestinationSpec,
    spec: InstanceSpec,
    engine: Engine,
    log: TransactionLog,
    recovered: RecoveredState,
) -> ReplicationDestination:
    first_txid = log.journal.first_txid
    acknowledged_txid = recovered.acknowledged_txids.get(destination.name)
    if (
        log.journal.has_unknown_removals
        and acknowledged_txid is not None
        and acknowledged_txid < first_txid - 1
    ):
        engine.log.emit(
            "1D-0132",
            destination=destination.name,
            begin=acknowledged_txid + 1,
            first_txid=first_txid,
        )
    routes = make_routes(destination, spec, engine)
    return make_destination(
        destination, spec.name, routes, log, recovered.log_id, acknowledged_txid or 0
    )


def make_routes(destination: DestinationSpec, spec: InstanceSpec, engine: Engine) -> Routes:
    """Return the topics and groups that are replicated to a destination."""
    routes = [
        route
        for topic in destination.topics
        for route in _routes(topic, _filter(topic, destination, engine), spec)
    ]
    return Routes(routes, destination.pass_through)


def make_destination(
    destination: DestinationSpec,
    instance: str,
    routes: Routes,
    log: TransactionLog,
    log_id: str,
    acknowledged_txid: int,
) -> ReplicationDestination:
    """Make a destination.

    Args:
        destination: its description.
        instance: the name of this instance.
        routes: the part of the log that is replicated there.
        log: the transaction log.
        log_id: the log's identity.
        acknowledged_txid: the txid up to which the destination had everything; 0 if that is not
            known.
    """
    sender = ReplicationSender(
        JournalSource(log.journal, log.is_unrecoverable),
        f"{log_id}/{_digest(destination)}",
        routes,
        max(acknowledged_txid, log.journal.first_txid - 1),  # no wait for removed entries
    )
    transport = destination.transports[0].type if destination.transports else "amps-replication"
    client = link_name(
        instance, destination.name, destination.group, destination.sync_type, transport
    )
    return ReplicationDestination(
        destination, sender, LinkDirection(client, "", destination.group, "", "")
    )


def hold_files(
    destination: ReplicationDestination,
    replication: ReplicationState,
    engine: Engine,
    log: TransactionLog,
) -> None:
    """Retain the files of the log that a destination needs, until it is replaced or removed."""
    name, sender = destination.spec.name, destination.sender
    delays = DestinationRetentionLog(name, replication, engine.clock, engine.log)
    destination.release_files = log.hold_files(
        lambda: sender.first_needed_txid, f"destination {name}", delays.log_retained_journal
    )


def _routes(
    topic: ReplicatedTopicSpec, content_filter: ReplicationContentFilter | None, spec: InstanceSpec
) -> Iterator[TopicRoute]:
    """Yield the routes of a Topic: its own, and one per SOW topic with a Pattern that it covers."""
    named = TopicRoute(topic.message_type, topic.name, content_filter)
    yield named
    alike = [spec_topic for spec_topic in spec.sow if spec_topic.message_type == topic.message_type]
    for position, spec_topic in enumerate(alike):
        if not isinstance(spec_topic, TopicSpec) or spec_topic.pattern is None:
            continue
        if named.covers(JournalTopic(spec_topic.message_type, spec_topic.name)):
            earlier = frozenset(earlier_topic.name for earlier_topic in alike[:position])
            yield named._replace(name=f"(?:{spec_topic.pattern})", excluded_topics=earlier)


def _filter(
    topic: ReplicatedTopicSpec, destination: DestinationSpec, engine: Engine
) -> ReplicationContentFilter | None:
    if topic.filter is None:
        return None
    settings, has_failed = engine.settings, False

    def failed(error: Exception) -> None:
        nonlocal has_failed
        if not has_failed:
            has_failed = True
            names = {"destination": destination.name, "topic": topic.name}
            engine.log.emit("21-0023", **names, problem=f"{type(error).__name__}: {error}")

    message_type = settings.message_types[topic.message_type]
    return ReplicationContentFilter(topic.filter, message_type, settings.functions, failed)


def _digest(destination: DestinationSpec) -> str:
    """Return a digest of the settings that select the messages for a destination."""
    content = (
        [(topic.message_type, topic.name, topic.filter) for topic in destination.topics],
        destination.pass_through,
    )
    return hashlib.blake2b(msgspec.json.encode(content), digest_size=8).hexdigest()
