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
from server.replication.core.sender import PeerInstance


def refusal(ours: Hello, theirs: Hello, others: Iterable[Hello] = ()) -> str | None:
    """Return why an instance is not to be replicated with; None if there is no reason.

    Args:
        ours: the hello of this instance.
        theirs: the hello of the other one.
        others: the hellos of the instances that this one has links with.
    """
    if theirs.version != ours.version:
        return (
            f"{theirs.instance} speaks version {theirs.version} of the replication protocol, "
            f"and {ours.instance} speaks version {ours.version}: one of them has to be upgraded"
        )
    if not theirs.instance:
        return "an instance that replicates must have a Name: give it one"
    if theirs.instance == ours.instance:
        if theirs.nonce == ours.nonce:
            return (
                f"{ours.instance} is connected to itself: an InetAddr of a Destination is its own; "
                "give the one of the other instance"
            )
        return f"both instances are called {ours.instance}: each must have a Name of its own"
    for other in others:
        if other.instance == theirs.instance and other.log != theirs.log:
            return (
                f"another instance that is called {theirs.instance} is connected to "
                f"{ours.instance}: each must have a Name of its own"
            )
    if not (ours.sends and theirs.takes) and not (theirs.sends and ours.takes):
        return (
            f"neither {ours.instance} nor {theirs.instance} replicates to the other: one needs a "
            "Destination for the other, and that a transport of type amps-replication"
        )
    return None


def group_refusal(ours: Hello, theirs: Hello, group: str) -> str | None:
    """Return why an instance is not that of a destination; None if it is.

    Source: AMPS User Guide, Configuring Replication: the group of a destination must be that of the
    instance there.

    Args:
        ours: the hello of this instance.
        theirs: the hello of the instance that the destination's address led to.
        group: the destination's Group.
    """
    if theirs.group == group:
        return None
    return (
        f"{theirs.instance} is of the group {theirs.group}, and the destination of "
        f"{ours.instance} has the group {group}: correct the Group or the InetAddr of the "
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
    ours: str, theirs: str, old: PeerConnection, new: PeerConnection
) -> ConnectionChoice:
    """Return which of two connections between two instances stay; both compute the same.

    A connection for both directions is better than one for one direction, and if there are only
    such, each direction has its own. Of two for both directions, the one stays that was made by the
    instance with the lower name. An instance that makes another connection has lost the one before.

    Args:
        ours: name of this instance.
        theirs: name of the other one.
        old: the existing connection.
        new: the connection just made.
    """
    if old.is_outgoing == new.is_outgoing:
        return ConnectionChoice.NEW
    if old.is_bidirectional != new.is_bidirectional:
        return ConnectionChoice.NEW if new.is_bidirectional else ConnectionChoice.OLD
    if not new.is_bidirectional:
        return ConnectionChoice.BOTH
    return ConnectionChoice.NEW if new.is_outgoing == (ours < theirs) else ConnectionChoice.OLD
