"""The handshake of two instances: identifies the peer, and decides whether they may replicate.

Each sends a `Hello` first; the other end checks it, and refuses it with a reason (`HelloRefusal`)
that both log. Then, for each direction that has a destination, the source sends `PositionRequest`.
The caller checks credentials, and that both configurations match.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from server.replication.core.frames import Hello
from server.replication.core.peer_instance import PeerInstance


def refusal(own: Hello, peer: Hello, others: Iterable[Hello] = ()) -> str | None:
    """Return why this instance must not replicate with another one; None if it may.

    Args:
        own: the hello of this instance.
        peer: the hello of the other one.
        others: the hellos of the instances with which this one has links.
    """
    if peer.version != own.version:
        return (
            f"{peer.instance} speaks version {peer.version} of the replication protocol, "
            f"and {own.instance} speaks version {own.version}: one of them has to be upgraded"
        )
    if not peer.instance:
        return "an instance that replicates must have a Name: give it one"
    if peer.instance == own.instance:
        if peer.nonce == own.nonce:
            return (
                f"{own.instance} is connected to itself: an InetAddr of a Destination is its own; "
                "give the one of the other instance"
            )
        return f"both instances are called {own.instance}: each must have a Name of its own"
    for other in others:
        if other.instance == peer.instance and other.log != peer.log:
            return (
                f"another instance that is called {peer.instance} is connected to "
                f"{own.instance}: each must have a Name of its own"
            )
    if not (own.sends and peer.takes) and not (peer.sends and own.takes):
        return (
            f"neither {own.instance} nor {peer.instance} replicates to the other: one needs a "
            "Destination for the other, and that a transport of type amps-replication"
        )
    return None


def group_refusal(own: Hello, peer: Hello, group: str) -> str | None:
    """Return why an instance is not that of a destination; None if it is.

    Source: AMPS User Guide, Configuring Replication: the group of a destination must be that of the
    instance there.

    Args:
        own: the hello of this instance.
        peer: the hello of the instance at the destination's address.
        group: the destination's Group.
    """
    if peer.group == group:
        return None
    return (
        f"{peer.instance} is of the group {peer.group}, and the destination of "
        f"{own.instance} has the group {group}: correct the Group or the InetAddr of the "
        "Destination, or the Group of the instance"
    )


def peer_of(hello: Hello) -> PeerInstance:
    """Return the peer that a hello describes."""
    return PeerInstance(hello.instance, hello.group, hello.log, hello.began)


class PeerConnection(NamedTuple):
    """One of several connections between two instances, as both of them see it.

    Attributes:
        is_outgoing: whether this instance made it.
        is_bidirectional: whether both send over it, or only the instance that made it. The instance
            that accepted it sends that in the `Hello`.
    """

    is_outgoing: bool
    is_bidirectional: bool


class ConnectionChoice(Enum):
    """Which of two connections stay."""

    OLD = "old"
    NEW = "new"
    BOTH = "both"


def choose_connection(
    own: str, peer: str, old: PeerConnection, new: PeerConnection
) -> ConnectionChoice:
    """Return which of two connections between two instances stay; both compute the same.

    A connection for both directions is better than one for one direction, and if there are only
    such, each direction has its own. Of two for both directions, the one stays that was made by the
    instance with the lower name. An instance that makes another connection has lost the one before.

    Args:
        own: name of this instance.
        peer: name of the other one.
        old: the existing connection.
        new: the connection just made.
    """
    if old.is_outgoing == new.is_outgoing:
        return ConnectionChoice.NEW
    if old.is_bidirectional != new.is_bidirectional:
        return ConnectionChoice.NEW if new.is_bidirectional else ConnectionChoice.OLD
    if not new.is_bidirectional:
        return ConnectionChoice.BOTH
    return ConnectionChoice.NEW if new.is_outgoing == (own < peer) else ConnectionChoice.OLD
