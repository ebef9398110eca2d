"""All replication links of an instance.

There is one link between two instances, for both directions, regardless of which end has made the
connection. But a connection that the other instance has made may not meet the requirements of the
destination: encryption, and verified certificates. Then nothing is sent to the destination over it,
and this instance makes another connection. If that one too serves one direction only, there are two
links.

If there is a link already, the instance that makes another one decides between them.
`choose_connection` is the rule; by it both ends reach the same decision if each makes one at the
same time. If the connecting instance does not know of the existing link, it has lost that link.
Until a frame arrives over a new connection, the accepting end holds it in reserve, and then opens
the link. It also does so if another run of the other instance was connected last: this run may have
ended, and its bytes may have waited in a buffer.

Log entries of links that go up, go down, or are refused again and again are rate-limited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from server.replication.core import (
    VERSION,
    ConnectionChoice,
    Hello,
    MeshRouter,
    PeerConnection,
    choose_connection,
    group_refusal,
    refusal,
)
from server.replication.links import peer_identity
from server.replication.links.duplicate_conflicts import DuplicateConflictLog
from server.replication.links.flap_log import LinkFlapLog
from server.replication.links.handshake import (
    PeerDescriptionError,
    description_for_peer,
    destination_of,
    failed,
    read_description,
    validate,
    without_paths,
)
from server.replication.links.link import (
    HEARTBEAT_INTERVAL_S,
    ReplicationLink,
)
from server.replication.links.link_peer import LinkPeer, link_peer_of
from server.replication.links.link_stage import LinkStage, Shortfall
from server.replication.links.peer_access import PeerAccess, queue_of
from server.util.clock import MICROSECONDS_PER_SECOND
from server.util.rate_limited_log import RateLimitedLog, host_of

if TYPE_CHECKING:
    from config_schema.topology import InstanceDescription
    from server.engine.scheduler import Scheduler
    from server.replication.core import PeerMessage, RoutedMessage
    from server.replication.links.admission import LinkAdmission
    from server.replication.links.interfaces import LinkConnection
    from server.replication.links.replication_state import ReplicationDestination, ReplicationState
    from server.storage.journal import JournalTopic
    from server.util.clock import Clock
    from server.util.log_protocol import ServerLog


PeerMessageHandler: TypeAlias = Callable[[str, bytes], None]
"""A callback that receives the name of the sender and the body of a message."""


class LinkRegistry:
    """The replication links of an instance.

    Args:
        replication: its replication state.
        scheduler: the scheduler of the engine's thread.
        clock: timers.
        log: the event log.

    Attributes:
        conflict_log: logs pairs of messages that have the same bookmark.
        flap_log: logs links going up and down.
    """

    def __init__(
        self, replication: ReplicationState, scheduler: Scheduler, clock: Clock, log: ServerLog
    ) -> None:
        self.replication: Final = replication
        self.scheduler: Final = scheduler
        self.log: Final = log
        self.conflict_log: Final = DuplicateConflictLog(clock, log)
        self.flap_log: Final = LinkFlapLog(clock, log)
        self._problem_log: Final = RateLimitedLog(log, clock, burst=1, summary=None)
        self._clock = clock
        self._public_description = without_paths(replication.description)
        self._peer_access: Final = PeerAccess(replication.destinations)
        self._links: set[ReplicationLink] = set()
        self._links_by_peer: dict[str, list[ReplicationLink]] = {}
        self._watchers: list[Callable[[], None]] = []
        self._handlers: dict[str, PeerMessageHandler] = {}
        self._default_handler: Callable[[str, str, str, bytes], None] = _drop_message
        self.register_handler(peer_identity.SUBJECT, replication.peer_identities.receive_notice)
        self._router: Final = MeshRouter(replication.instance, replication.nonce)
        self._last_tick_s = scheduler.elapsed()
        self._is_ticking = True
        replication.set_wake_callback(self._wake_links)
        self._cancel_timer = clock.call_later(HEARTBEAT_INTERVAL_S, self._tick)

    # connections

    def accept(
        self, connection: LinkConnection, transport: str, admission: LinkAdmission
    ) -> ReplicationLink:
        """Create a link over a connection that another instance has made.

        Args:
            connection: the connection.
            transport: name of the transport that accepted it.
            admission: decides for the transport whether the peer is admitted.
        """
        link = ReplicationLink(self, connection, transport, admission=admission)
        self._links.add(link)
        return link

    def connect(
        self,
        connection: LinkConnection,
        transport: str,
        destination: str,
        credentials: tuple[str, str],
        on_outcome: Callable[[bool], None],
        peer_host: str = "",
    ) -> ReplicationLink:
        """Create a link over a connection made for a destination, and send our `Hello`.

        Args:
            connection: the connection.
            transport: name of the Transport of the destination.
            destination: its name.
            credentials: the user and the password to log on with.
            on_outcome: called once with whether the link was established.
            peer_host: the host where the peer was reached, as the configuration names it.
        """
        link = ReplicationLink(
            self,
            connection,
            transport,
            destination=destination,
            peer_host=peer_host,
            on_outcome=on_outcome,
        )
        self._links.add(link)
        user, password = credentials
        self.replication.destinations[destination].user = user
        description = msgspec.msgpack.encode(
            self.replication.make_introduction(self._public_description)
        )
        link.send_hello(self._make_hello(user=user, password=password, description=description))
        return link

    def is_connected(self, destination: str) -> bool:
        """Return whether there is a link with a destination."""
        return self.replication.destinations[destination].is_connected

    def reconnect(self, destination: str) -> bool:
        """Close the links to a destination, so that others are made; return whether one existed."""
        links = [link for link in self._links if link.destination == destination]
        for link in links:
            link.close()
        return bool(links)

    def use_description(self, description: InstanceDescription) -> None:
        """Describe this instance anew, and close all links: both ends validate the next ones.

        Args:
            description: of this instance.
        """
        self.replication.description = description
        self._public_description = without_paths(description)
        self.close_links()

    def close_links(self) -> None:
        """Close all links; others are made."""
        for link in list(self._links):
            link.close()

    def watch(self, watcher: Callable[[], None]) -> Callable[[], None]:
        """Register a callback for links being opened and closed; return its removal."""
        self._watchers.append(watcher)
        return partial(self._watchers.remove, watcher)

    @property
    def peers(self) -> Mapping[str, LinkPeer]:
        """The instances with which this instance has links, by name."""
        return {name: link_peer_of(name, links) for name, links in self._links_by_peer.items()}

    # messages beside the log (`PeerMessage`)

    def register_handler(self, subject: str, handler: PeerMessageHandler) -> None:
        """Register the callback for messages with a subject: it gets the sender and the body."""
        self._handlers[subject] = handler

    def set_default_handler(self, handler: Callable[[str, str, str, bytes], None]) -> None:
        """Register the callback for messages with all other subjects.

        Args:
            handler: called with the recipient of a message (this instance, or one that cannot be
                reached), its sender, its subject and its body.
        """
        self._default_handler = handler

    def send_message(self, to: str, subject: str, body: bytes) -> None:
        """Send a message to an instance, through others if there is no link; it may be lost.

        Args:
            to: its name.
            subject: the subject.
            body: the body, no more than `MAX_PEER_MESSAGE_SIZE` bytes.
        """
        self._send_routed(self._router.route_message(to, subject, body))

    def is_reachable(self, name: str) -> bool | None:
        """Return whether an instance can be reached; None while that is being determined."""
        return self._router.is_reachable(name, self._now_us)

    def may_receive(
        self, peer: str, topic: JournalTopic, path: str, body: bytes | None = None
    ) -> bool:
        """Return whether an instance may receive an entry of the log.

        Args:
            peer: its name.
            topic: the entry's topic.
            path: the instances that the entry has passed through.
            body: the part of its body that would be sent.
        """
        return self._peer_access.may_receive(peer, self._admissions(peer), topic, path, body)

    def _admissions(self, peer: str) -> list[LinkAdmission | None]:
        """Return the admissions of the links with an instance, None for those made here."""
        return [link.admission for link in self._links_by_peer.get(peer, ())]

    def log_refused_request(self, peer: str, topic: JournalTopic) -> None:
        """Log and audit that an instance has requested a message to which it is not entitled.

        Args:
            peer: its name.
            topic: the topic of the message.
        """
        links = self._links_by_peer.get(peer, ())
        self._log_refused_message(
            links, "ask for messages of", topic, "neither sent to it nor by it"
        )

    def _log_refused_message(
        self, links: Sequence[ReplicationLink], action: str, topic: JournalTopic, reason: str
    ) -> None:
        """Log and audit a message of an instance about a topic that is not shared with it."""
        for link in links[:1]:
            link.log_problem(
                "1E-0064", action, topic, action=action, topic=topic.name, problem=reason
            )
            if link.admission is not None:
                link.admission.audit_refusal(action, topic.name, reason)

    def dispatch_message(self, link: ReplicationLink, message: PeerMessage) -> None:
        """Dispatch a message of an instance; drop it if it has no meaning here."""
        peer = link.received_hello.instance
        queue = queue_of(message.subject)
        access = self._peer_access
        if queue is not None and not access.is_topic_shared(peer, self._admissions(peer), queue):
            reason = "not replicated to it or by it"
            self._log_refused_message([link], "speak of queue", queue, reason)
            return
        result = self._router.receive_message(message, peer, self._now_us)
        self._send_routed(result.messages)
        if not result.sender:
            return
        handler = self._handlers.get(message.subject)
        if handler is None:
            self._default_handler(message.to, result.sender, message.subject, message.body)
        elif message.to == self.replication.instance and result.sender == peer:
            handler(peer, message.body)

    def _send_routed(self, messages: Iterable[RoutedMessage]) -> None:
        for peer, message in messages:
            for link in self._links_by_peer.get(peer, ())[:1]:
                link.send_message(message)

    @property
    def _now_us(self) -> int:
        """The time for the router, in microseconds that never go back."""
        return int(self.scheduler.elapsed() * MICROSECONDS_PER_SECOND)

    def close(self) -> None:
        """Close all links, and stop the timer."""
        self._is_ticking = False
        self._cancel_timer()
        self.close_links()

    # used by links

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` once after a delay, and return a function that cancels it."""
        return self._clock.call_later(seconds, callback)

    def process_hello(self, link: ReplicationLink, hello: Hello) -> None:
        """Check the `Hello` of the peer, and open the link or refuse the peer."""
        others = [
            links[0].received_hello
            for links in self._links_by_peer.values()
            if any(peer_link.is_verified for peer_link in links) or not link.is_verified
        ]
        reason = refusal(self._make_hello(), hello, others)
        reason = reason or self.replication.peer_identities.refusal(hello, has_answered=False)
        link.hello = hello
        if reason is not None:
            link.refuse(reason)
            return
        try:
            description = link.description = read_description(hello)
        except PeerDescriptionError as problem:
            link.refuse(str(problem))
            return
        if link.destination is None:
            link.destination = self._find_destination(description)
            if link.destination is not None and not hello.takes:
                self._log_non_receiver(link)
            elif link.destination is not None:
                self._check_destination(link, link.destination)
        elif self._is_taken(link.destination, hello.instance):
            link.close()  # meanwhile another instance has connected and is this destination
            return
        reason = self._refusal_reason(link, hello, description)
        if reason is not None:
            link.refuse(reason)
            return
        self._choose_link(link, hello)

    def open_reserved(self, link: ReplicationLink) -> bool:
        """Open a reserved link that the peer now uses, if possible; return whether it opened."""
        self._open_if_current(link)
        return link.stage is LinkStage.OPEN

    def report_changed_log(self, link: ReplicationLink, before: str, *, is_empty: bool) -> None:
        """Report that the instance of this name has another log than before.

        Args:
            link: the link with the instance.
            before: the identity of the log that it had.
            is_empty: whether its log is empty.
        """
        self.replication.peer_identities.report_changed_log(
            link.address,
            before,
            link.received_hello.log,
            lambda body: self.send_message(
                link.received_hello.instance, peer_identity.SUBJECT, body
            ),
            is_empty=is_empty,
        )

    def remove_link(self, link: ReplicationLink) -> None:
        """Remove a closed link, and notify the watchers."""
        self._links.discard(link)
        if link.hello is not None:
            self._remove_from_peer(link, link.hello.instance)
        self._notify_watchers()

    def _remove_from_peer(self, link: ReplicationLink, peer: str) -> None:
        links = self._links_by_peer.get(peer, [])
        if link in links:
            links.remove(link)
            if not links:
                del self._links_by_peer[peer]
                self._router.remove_peer(peer)

    def log_problem(self, message: str, subject: str, *aspects: object, **fields: object) -> None:
        """Write an event log entry if it is new, or if its rate limit has expired.

        Args:
            message: the id of the entry.
            subject: the address concerned; its port is ignored by the rate limit.
            aspects: distinguish entries that have the id and the address in common.
            fields: the fields of the entry.
        """
        destination = self.replication.destinations.get(str(fields.get("destination", "")))
        if destination is not None:
            destination.set_link_problem(fields.get("reason", fields.get("problem", "")))
        self._problem_log.emit(message, (host_of(subject) or subject, *aspects), **fields)

    # handshake

    def _make_hello(
        self, *, sends: bool = True, user: str = "", password: str = "", description: bytes = b""
    ) -> Hello:
        replication = self.replication
        return Hello(
            VERSION,
            replication.instance,
            replication.group,
            replication.log_id,
            replication.log_start_txid,
            sends,
            replication.description.listens is not None,
            user,
            password,
            description,
            replication.nonce,
        )

    def _log_non_receiver(self, link: ReplicationLink) -> None:
        """Log that an instance has connected that is a destination, but accepts no replication."""
        name, link.destination = link.destination, None
        self.log_problem("1E-0009", link.address, name, destination=name, other=link.address)

    def _check_destination(self, link: ReplicationLink, destination: str) -> None:
        """Check whether a destination may be served over the connection that its instance has made.

        If not, that is logged as long as no other link leads there.
        """
        admission, spec = link.admission, self.replication.destinations[destination].spec
        assert admission is not None  # noqa: S101 - the connection was accepted
        reason = admission.check_destination(spec)
        if reason is not None:
            link.shortfall = Shortfall(destination, reason)
            link.destination = None
            return
        doubt = admission.destination_warning(spec)
        if doubt is not None:
            link.log_problem("1E-0065", destination, destination=destination, reason=doubt)

    def _is_taken(self, destination: str, instance: str) -> bool:
        """Return whether another instance currently holds a destination."""
        state = self.replication.destinations[destination]
        return state.is_connected and not self._is_destination_peer(state, instance)

    def _find_destination(self, peer: InstanceDescription) -> str | None:
        """Return the name of the destination that a connected instance is; None if it is none."""
        free = [
            destination
            for name, destination in self.replication.destinations.items()
            if not self._is_taken(name, peer.name)
        ]
        return destination_of(self.replication.description, peer, free)

    @staticmethod
    def _is_destination_peer(destination: ReplicationDestination, instance: str) -> bool:
        peer = destination.sender.peer
        return peer is not None and peer.name == instance

    def _refusal_reason(
        self, link: ReplicationLink, hello: Hello, peer: InstanceDescription
    ) -> str | None:
        """Return the reason not to send to an instance, or None; log validation failures."""
        name = link.destination
        own = self._make_hello(sends=name is not None)
        if name is None:
            return refusal(own, hello)
        spec = self.replication.destinations[name].spec
        is_destination = spec.is_for(hello.instance, hello.group)
        reason = None if is_destination else group_refusal(own, hello, spec.group)
        if reason is None and not hello.takes:
            reason = f"{hello.instance} has no transport of type amps-replication: it needs one"
        served = {
            peer_link.destination for peer_link in self._links_by_peer.get(hello.instance, ())
        }
        for other in served - {None, name}:
            reason = reason or (
                f"{hello.instance} is the destination {other} of {own.instance} already, and "
                f"cannot be {name} too: an instance is one destination of another one; "
                "remove one of the two"
            )
        if reason is not None:
            return reason
        findings = validate(self.replication.description, name, peer)
        for finding in findings:
            problem = str(finding.problem)
            self.log_problem("1E-0005", link.address, problem, destination=name, problem=problem)
        return failed(findings, own.instance, hello.instance) if findings else None

    def _choose_link(self, link: ReplicationLink, hello: Hello) -> None:
        """Keep a link with an instance, unless there is a better one already."""
        if link.admission is not None and link.description is not None:
            introduction = self.replication.make_introduction(self._public_description)
            description = description_for_peer(
                introduction, link.description, link.destination, link.admission
            )
            sends = link.destination is not None
            link.send_hello(self._make_hello(sends=sends, description=description))
        others = [
            other_link
            for other_link in self._links_by_peer.get(hello.instance, ())
            if _is_with_run(other_link, hello)
        ]
        if not link.is_outgoing and (
            others or self.replication.peer_identities.is_another_run(hello)
        ):
            link.reserve()
        elif any(
            self._choose_connection(other_link, link) is ConnectionChoice.OLD
            for other_link in others
        ):
            link.close()
        else:
            self._open_if_current(link)

    def _open_if_current(self, link: ReplicationLink) -> None:
        """Open a link, if the run at its other end is the current one."""
        identities = self.replication.peer_identities
        if identities.may_have_ended(link.received_hello, link.hello_sent_s):
            link.close()  # without a response: if the run is alive, it will make another link
            return
        reason = identities.refusal(link.received_hello, has_answered=True)
        if reason is not None:
            link.refuse(reason)
            return
        self._open_link(link)

    def _open_link(self, link: ReplicationLink) -> None:
        """Open a link, and close the links that it replaces."""
        name = link.received_hello.instance
        for other_link in list(self._links_by_peer.get(name, ())):
            if not (
                _is_with_run(other_link, link.received_hello)
                and self._choose_connection(other_link, link) is ConnectionChoice.BOTH
            ):
                other_link.close()
        self._links_by_peer.setdefault(name, []).append(link)
        link.previous_log_id = self.replication.peer_identities.record_peer(
            link.received_hello, self.scheduler.elapsed()
        )
        self._router.add_peer(name)
        link.open()
        self._notify_watchers()

    def _choose_connection(self, old: ReplicationLink, new: ReplicationLink) -> ConnectionChoice:
        """Return which of two links with an instance stays."""
        connections = (
            PeerConnection(link.is_outgoing, link.is_bidirectional) for link in (old, new)
        )
        return choose_connection(
            self.replication.instance, new.received_hello.instance, *connections
        )

    def _notify_watchers(self) -> None:
        for watcher in self._watchers:
            watcher()

    def _log_shortfall(self, link: ReplicationLink) -> None:
        """Log that a destination is served neither over a connection nor over another one."""
        if link.stage is not LinkStage.OPEN or link.shortfall is None:
            return
        name, reason = link.shortfall
        if not self.replication.destinations[name].is_connected:
            self.log_problem(
                "1E-0020",
                link.address,
                name,
                reason,
                instance=self.replication.instance,
                other=link.address,
                destination=name,
                reason=reason,
            )

    # timers

    def _wake_links(self) -> None:
        """Wake all links, because entries were committed or settled."""
        for links in self._links_by_peer.values():
            for link in links:
                link.wake()

    def _tick(self) -> None:
        if not self._is_ticking:
            return
        self._cancel_timer = self._clock.call_later(HEARTBEAT_INTERVAL_S, self._tick)
        now = self.scheduler.elapsed()
        suspended_s = max(now - self._last_tick_s - 2 * HEARTBEAT_INTERVAL_S, 0.0)
        self._last_tick_s = now
        for link in list(self._links):
            link.tick(now, suspended_s)
            self._log_shortfall(link)
        self._send_routed(self._router.make_probes(self._now_us))


def _is_with_run(link: ReplicationLink, hello: Hello) -> bool:
    """Return whether a link is with this run of an instance, and not with an earlier one."""
    return link.received_hello.nonce == hello.nonce


def _drop_message(_to: str, _sender: str, _subject: str, _body: bytes) -> None:
    """Drop the message: no callback is registered."""
