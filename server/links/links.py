"""All links of an instance.

There is one link between two instances, for both directions, whoever has made the connection. But
nothing is sent to a destination over a connection of the other instance's that does not give what
the destination wants: that it is encrypted, and certificates are verified. Then this instance makes
another one, and if that does for one direction only, too, there are two links.

Where there is a link already, the instance that makes another decides between them; `which_stays`
is the rule, by which both find the same if each makes one at the same time. If it does not know of
the one that there is, it has lost that one. Until something comes over a new connection, its other
end holds it in reserve, and then takes it up. So it does, too, where another run of the other
instance was there last: this one may be over, and what it has said may have waited in a buffer.

Links that come, go, or are refused again and again are logged now and then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import msgspec

from server.links import identities
from server.links.admin_addresses import AdminInterface
from server.links.comings import Comings
from server.links.conflicts import Conflicts
from server.links.greeting import (
    GreetingError,
    described,
    destination_of,
    failed,
    told_to,
    validate,
    without_paths,
)
from server.links.link import BEAT_SECONDS, Link, Shortfall, Stage
from server.links.peer_access import PeerAccess, queue_of
from server.replication import (
    VERSION,
    Connection,
    Courier,
    Hello,
    Stay,
    group_refusal,
    refusal,
    which_stays,
)

if TYPE_CHECKING:
    from config_schema.together import InstanceDescription
    from server.base.clock import Clock
    from server.base.log import Log
    from server.journal import Topic
    from server.links.gate import Gate
    from server.links.line import Conduit, Turns
    from server.links.replication import OwnDestination, Replication
    from server.replication import Parcel, Word

_SAY_AGAIN_SECONDS: Final = 60.0
_MOST_SAID: Final = 1000


class Peer(NamedTuple):
    """An instance that there is a link with.

    Attributes:
        name: its name.
        description: what it says of itself.
        destination: the name of the destination that it is; None if nothing is sent there.
        sends: whether it sends here.
        admin: where its admin interface is.
        is_stranger: whether its user has been authenticated, and is not known to be the instance.
    """

    name: str
    description: InstanceDescription
    destination: str | None
    sends: bool
    admin: AdminInterface
    is_stranger: bool


Listener: TypeAlias = Callable[[str, bytes], None]
"""Told who says something, and what."""


class Links:
    """The links of an instance.

    Args:
        replication: what it has of replication.
        turns: shares out the engine's time.
        clock: timers.
        log: where it writes what happens.

    Attributes:
        replication: see above.
        turns: see above.
        log: see above.
        conflicts: says when two messages have one name.
        comings: says that links begin and end.
    """

    def __init__(self, replication: Replication, turns: Turns, clock: Clock, log: Log) -> None:
        self.replication: Final = replication
        self.turns: Final = turns
        self.log: Final = log
        self.conflicts: Final = Conflicts(clock, log)
        self.comings: Final = Comings(clock, log)
        self._clock = clock
        self._told: Final = without_paths(replication.description)
        self._access: Final = PeerAccess(replication.destinations)
        self._links: set[Link] = set()
        self._by_peer: dict[str, list[Link]] = {}
        self._watchers: list[Callable[[], None]] = []
        self._listeners: dict[str, Listener] = {}
        self._listen: Callable[[str, str, str, bytes], None] = _ignore
        self.listen(identities.SUBJECT, replication.identities.hear)
        self._courier: Final = Courier(replication.instance, replication.nonce)
        self._said: dict[tuple[object, ...], float] = {}
        self._ticked = turns.elapsed()
        self._is_ticking = True
        replication.use_links(self._go_on)
        self._cancel = clock.call_later(BEAT_SECONDS, self._tick)

    # Connections.

    def accept(self, conduit: Conduit, transport: str, gate: Gate) -> Link:
        """Begin a link over a connection that another instance has made.

        Args:
            conduit: the connection.
            transport: name of the transport where that was.
            gate: the transport, as links see it.
        """
        link = Link(self, conduit, transport, gate=gate)
        self._links.add(link)
        return link

    def connect(
        self,
        conduit: Conduit,
        transport: str,
        destination: str,
        credentials: tuple[str, str],
        outcome: Callable[[bool], None],
        reached_at: str = "",
    ) -> Link:
        """A connection has been made for a destination.

        Args:
            conduit: the connection.
            transport: name of the Transport of the destination.
            destination: its name.
            credentials: the user and the password to log on with.
            outcome: told once whether the link has come to be.
            reached_at: the host where the other end was, as the configuration calls it.
        """
        link = Link(
            self,
            conduit,
            transport,
            destination=destination,
            reached_at=reached_at,
            outcome=outcome,
        )
        self._links.add(link)
        user, password = credentials
        self.replication.destinations[destination].user = user
        description = msgspec.msgpack.encode(self.replication.introduction(self._told))
        link.greet(self._hello(user=user, password=password, description=description))
        return link

    def is_connected(self, destination: str) -> bool:
        """Whether there is a link that leads to a destination."""
        return self.replication.destinations[destination].is_connected

    def reconnect(self, destination: str) -> bool:
        """End the links that lead to a destination, so that others are made; whether one did."""
        links = [one for one in self._links if one.destination == destination]
        for link in links:
            link.close()
        return bool(links)

    def watch(self, watcher: Callable[[], None]) -> None:
        """Tell somebody whenever a link has come to be, or is over."""
        self._watchers.append(watcher)

    @property
    def peers(self) -> Mapping[str, Peer]:
        """The instances that there are links with, by name."""
        return {name: _peer(name, links) for name, links in self._by_peer.items()}

    # Words.

    def listen(self, subject: str, listener: Listener) -> None:
        """Tell somebody of words about a subject."""
        self._listeners[subject] = listener

    def use_others(self, listen: Callable[[str, str, str, bytes], None]) -> None:
        """Tell somebody of all other words.

        Args:
            listen: told whom a word is for (this instance, or one that cannot be reached), who says
                it, what it is about, and what it says.
        """
        self._listen = listen

    def say(self, to: str, subject: str, body: bytes) -> None:
        """Say something to an instance, by way of others if there is no link; it may be lost.

        Args:
            to: its name.
            subject: what it is about.
            body: what to say, no more than `MOST_IN_WORD` bytes.
        """
        self._send(self._courier.send(to, subject, body))

    def reach(self, name: str) -> bool | None:
        """Whether an instance can be reached; None if that is not known, and being found out."""
        return self._courier.reach(name, self._now)

    def may_have(self, peer: str, topic: Topic, path: str, body: bytes | None = None) -> bool:
        """Return whether an instance may be told of an entry of the log.

        Args:
            peer: its name.
            topic: the entry's topic.
            path: the instances that the entry has been through.
            body: its body, as far as that is told.
        """
        return self._access.may_have(peer, self._gates(peer), topic, path, body)

    def _gates(self, peer: str) -> list[Gate | None]:
        """Return the gates of the links with an instance, None for those that were made here."""
        return [one.gate for one in self._by_peer.get(peer, ())]

    def refuse(self, peer: str, topic: Topic) -> None:
        """Log and audit that an instance has asked for a message that it may not have.

        Args:
            peer: its name.
            topic: the topic of the message.
        """
        links = self._by_peer.get(peer, ())
        self._refuse_word(links, "ask for messages of", topic, "neither sent to it nor by it")

    def _refuse_word(self, links: Sequence[Link], action: str, topic: Topic, reason: str) -> None:
        """Log and audit a word of an instance about a topic that it has no part in."""
        for link in links[:1]:
            link.complain("1E-0064", action, topic, action=action, topic=topic.name, problem=reason)
            if link.gate is not None:
                link.gate.refuse(action, topic.name, reason)

    def hear(self, link: Link, word: Word) -> None:
        """Take a word of an instance; what means nothing here is lost."""
        peer = link.met.instance
        queue = queue_of(word.subject)
        if queue is not None and not self._access.takes_part(peer, self._gates(peer), queue):
            self._refuse_word([link], "speak of queue", queue, "not replicated to it or by it")
            return
        received = self._courier.receive(word, peer, self._now)
        self._send(received.parcels)
        if not received.sender:
            return
        listener = self._listeners.get(word.subject)
        if listener is None:
            self._listen(word.to, received.sender, word.subject, word.body)
        elif word.to == self.replication.instance and received.sender == peer:
            listener(peer, word.body)

    def _send(self, parcels: Iterable[Parcel]) -> None:
        for peer, word in parcels:
            for link in self._by_peer.get(peer, ())[:1]:
                link.say(word)

    @property
    def _now(self) -> int:
        """The time for the courier, in microseconds that never go back."""
        return int(self.turns.elapsed() * 1_000_000)

    def close(self) -> None:
        """End all links, and let none begin any more."""
        self._is_ticking = False
        self._cancel()
        for link in list(self._links):
            link.close()

    # What links ask for; see `Host`.

    def after(self, seconds: float, then: Callable[[], None]) -> Callable[[], None]:
        """Call once, later; returns what cancels that."""
        return self._clock.call_later(seconds, then)

    def meet(self, link: Link, hello: Hello) -> None:
        """The other end has said who it is: judge it, and let the link begin."""
        others = [
            links[0].met
            for links in self._by_peer.values()
            if any(one.is_proven for one in links) or not link.is_proven
        ]
        reason = refusal(self._hello(), hello, others)
        reason = reason or self.replication.identities.refusal(hello, has_answered=False)
        link.hello = hello
        if reason is not None:
            link.refuse(reason)
            return
        try:
            theirs = link.description = described(hello)
        except GreetingError as problem:
            link.refuse(str(problem))
            return
        if link.destination is None:
            link.destination = self._find_destination(theirs)
            if link.destination is not None and not hello.takes:
                self._say_it_takes_nothing(link)
            elif link.destination is not None:
                self._see_whether_it_will_do(link, link.destination)
        elif self._is_taken(link.destination, hello.instance):
            link.close()  # another one has come meanwhile that stands for it, too
            return
        reason = self._problem_with(link, hello, theirs)
        if reason is not None:
            link.refuse(reason)
            return
        self._choose(link, hello)

    def take_up(self, link: Link) -> bool:
        """The other end goes on with a link that was held in reserve; whether it begins now."""
        self._let_in(link)
        return link.stage is Stage.OPEN

    def tell_another(self, link: Link, before: str, *, is_empty: bool) -> None:
        """The instance at the other end is another one than before; see `Host.tell_another`."""
        self.replication.identities.tell(
            link.address,
            before,
            link.met.log,
            lambda body: self.say(link.met.instance, identities.SUBJECT, body),
            is_empty=is_empty,
        )

    def ended(self, link: Link) -> None:
        """A link is over."""
        self._links.discard(link)
        if link.hello is not None:
            self._take_out(link, link.hello.instance)
        self._tell()

    def _take_out(self, link: Link, peer: str) -> None:
        links = self._by_peer.get(peer, [])
        if link in links:
            links.remove(link)
            if not links:
                del self._by_peer[peer]
                self._courier.disconnected(peer)

    def complain(self, message: str, who: str, *aspects: object, **fields: object) -> None:
        """Log something that may come again and again: if it is new, or once in a while."""
        own = self.replication.destinations.get(str(fields.get("destination", "")))
        if own is not None:
            own.note_trouble(fields.get("reason", fields.get("problem", "")))
        now = self.turns.elapsed()
        key = (message, who.rpartition(":")[0] or who, *aspects)
        said = self._said.pop(key, None)
        if said is not None and now - said < _SAY_AGAIN_SECONDS:
            self._said[key] = said
            return
        if len(self._said) >= _MOST_SAID:
            del self._said[next(iter(self._said))]
        self._said[key] = now
        self.log.emit(message, **fields)

    # Who is there.

    def _hello(
        self, *, sends: bool = True, user: str = "", password: str = "", description: bytes = b""
    ) -> Hello:
        replication = self.replication
        return Hello(
            VERSION,
            replication.instance,
            replication.group,
            replication.log_id,
            replication.began,
            sends,
            replication.description.listens is not None,
            user,
            password,
            description,
            replication.nonce,
        )

    def _say_it_takes_nothing(self, link: Link) -> None:
        """An instance has connected that is a destination, and takes nothing."""
        name, link.destination = link.destination, None
        self.complain("1E-0009", link.address, name, destination=name, other=link.address)

    def _see_whether_it_will_do(self, link: Link, destination: str) -> None:
        """An instance has connected that is a destination: may that be served over its connection?

        If not, that is said as long as no other link leads there.
        """
        gate, spec = link.gate, self.replication.destinations[destination].spec
        assert gate is not None  # noqa: S101 - the connection was accepted
        reason = gate.falls_short(spec)
        if reason is not None:
            link.shortfall = Shortfall(destination, reason)
            link.destination = None
            return
        doubt = gate.doubt(spec)
        if doubt is not None:
            link.complain("1E-0065", destination, destination=destination, reason=doubt)

    def _is_taken(self, destination: str, instance: str) -> bool:
        """Whether a destination is another instance at the moment."""
        own = self.replication.destinations[destination]
        return own.is_connected and not self._is_there(own, instance)

    def _find_destination(self, theirs: InstanceDescription) -> str | None:
        """Which destination an instance is that has connected."""
        free = [
            one
            for name, one in self.replication.destinations.items()
            if not self._is_taken(name, theirs.name)
        ]
        return destination_of(self.replication.description, theirs, free)

    @staticmethod
    def _is_there(destination: OwnDestination, instance: str) -> bool:
        peer = destination.sender.peer
        return peer is not None and peer.name == instance

    def _problem_with(self, link: Link, hello: Hello, theirs: InstanceDescription) -> str | None:
        """Why an instance is not to be sent what it would be; logs what does not fit."""
        name = link.destination
        ours = self._hello(sends=name is not None)
        if name is None:
            return refusal(ours, hello)
        spec = self.replication.destinations[name].spec
        is_meant = spec.is_for(hello.instance, hello.group)
        reason = None if is_meant else group_refusal(ours, hello, spec.group)
        if reason is None and not hello.takes:
            reason = f"{hello.instance} has no transport of type amps-replication: it needs one"
        served = {one.destination for one in self._by_peer.get(hello.instance, ())}
        for other in served - {None, name}:
            reason = reason or (
                f"{hello.instance} is the destination {other} of {ours.instance} already, and "
                f"cannot be {name} too: an instance is one destination of another one; "
                "remove one of the two"
            )
        if reason is not None:
            return reason
        found = validate(self.replication.description, name, theirs)
        for finding in found:
            problem = str(finding.problem)
            self.complain("1E-0005", link.address, problem, destination=name, problem=problem)
        return failed(found, ours.instance, hello.instance) if found else None

    def _choose(self, link: Link, hello: Hello) -> None:
        """Keep a link with an instance, unless there is one already that is better."""
        if link.gate is not None and link.description is not None:
            own = self.replication.introduction(self._told)
            description = told_to(own, link.description, link.destination, link.gate)
            sends = link.destination is not None
            link.greet(self._hello(sends=sends, description=description))
        others = [one for one in self._by_peer.get(hello.instance, ()) if _is_of(one, hello)]
        if not link.is_ours and (others or self.replication.identities.is_another_run(hello)):
            link.reserve()
        elif any(self._compare(one, link) is Stay.OLD for one in others):
            link.close()
        else:
            self._let_in(link)

    def _let_in(self, link: Link) -> None:
        """Let a link begin, if the run at its other end is the one that is there now."""
        known = self.replication.identities
        if known.may_be_over(link.met, link.greeted):
            link.close()  # without a word: if it is there, another link will be made
            return
        reason = known.refusal(link.met, has_answered=True)
        if reason is not None:
            link.refuse(reason)
            return
        self._keep(link)

    def _keep(self, link: Link) -> None:
        """Let a link begin, and those end that it replaces."""
        name = link.met.instance
        for one in list(self._by_peer.get(name, ())):
            if not (_is_of(one, link.met) and self._compare(one, link) is Stay.BOTH):
                one.close()
        self._by_peer.setdefault(name, []).append(link)
        link.log_before = self.replication.identities.meet(link.met, self.turns.elapsed())
        self._courier.connected(name)
        link.open()
        self._tell()

    def _compare(self, old: Link, new: Link) -> Stay:
        """Which stays of two links with an instance."""
        connections = (Connection(one.is_ours, one.is_for_both) for one in (old, new))
        return which_stays(self.replication.instance, new.met.instance, *connections)

    def _tell(self) -> None:
        for watcher in self._watchers:
            watcher()

    def _say_what_falls_short(self, link: Link) -> None:
        """Say of a connection that a destination is not served over it, and nor elsewhere."""
        if link.stage is not Stage.OPEN or link.shortfall is None:
            return
        name, reason = link.shortfall
        if not self.replication.destinations[name].is_connected:
            self.complain(
                "1E-0020",
                link.address,
                name,
                reason,
                instance=self.replication.instance,
                other=link.address,
                destination=name,
                reason=reason,
            )

    # Time.

    def _go_on(self) -> None:
        """Something has been committed, or settled."""
        for links in self._by_peer.values():
            for link in links:
                link.wake()

    def _tick(self) -> None:
        if not self._is_ticking:
            return
        self._cancel = self._clock.call_later(BEAT_SECONDS, self._tick)
        now = self.turns.elapsed()
        away = max(now - self._ticked - 2 * BEAT_SECONDS, 0.0)
        self._ticked = now
        for link in list(self._links):
            link.tick(now, away)
            self._say_what_falls_short(link)
        self._send(self._courier.step(self._now))


def _is_of(link: Link, hello: Hello) -> bool:
    """Whether a link is with this run of an instance, and not with an earlier one."""
    return link.met.nonce == hello.nonce


def _peer(name: str, links: Sequence[Link]) -> Peer:
    """An instance that there are links with."""
    description = links[0].description
    assert description is not None  # noqa: S101 - of links that have been met
    destinations = (link.destination for link in links if link.destination is not None)
    sends = any(one.met.sends for one in links)
    is_stranger = all(one.gate is not None and one.gate.is_stranger for one in links)
    return Peer(name, description, next(destinations, None), sends, links[0].admin, is_stranger)


def _ignore(_to: str, _sender: str, _subject: str, _body: bytes) -> None:
    """Nobody listens."""
