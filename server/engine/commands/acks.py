"""Acknowledgements: reads the types that a command requests, and sends them.

Source: AMPS Command Reference, ack: Status from Server.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from amperage.wire.framing import frame
from amperage.wire.header import Header, encode_header

if TYPE_CHECKING:
    from server.engine.session import Session
    from server.storage.sow.store import RecordStoreError
    from server.topics.subscriptions.delivery.outbox import Outbox


_MAX_KEPT_LENGTH: Final = 64
"""Characters; longer lists are not cached. Clients repeat the same short lists."""

NOT_STORED: Final = "not stored"
"""The reason of a failure: the effect of a command is not on stable storage."""

NOT_READABLE: Final = "not readable"
"""The reason of a failure: records are lost, or cannot be read from the disk."""


class SequencedAcks:
    """Writes the acks of commands that differ by their sequence number only.

    Args:
        ack_types: the types of ack, in the order in which they are sent.
    """

    __slots__ = ("_ack_types", "_frame_parts")

    def __init__(self, ack_types: Sequence[str]) -> None:
        self._ack_types = ack_types
        self._frame_parts: dict[int, list[bytes]] = {}  # the bytes around the number, by its length

    def send(self, outbox: Outbox, sequences: Sequence[bytes]) -> None:
        """Send successful acks.

        Args:
            outbox: the outbox to write to.
            sequences: the commands' sequence numbers, in digits.
        """
        frame_parts = self._frame_parts
        acks: list[bytes] = []
        for digits in sequences:
            around = frame_parts.get(len(digits))
            if around is None:
                around = frame_parts[len(digits)] = self._encode_frame_parts(digits)
            acks.append(digits.join(around))
        data, count = b"".join(acks), len(acks) * len(self._ack_types)
        outbox.traffic.answers.add(count, len(data))
        outbox.write_batch(data, count)

    def _encode_frame_parts(self, digits: bytes) -> list[bytes]:
        around = [b""]
        for ack in self._ack_types:
            header = Header("ack", sequence=int(digits), acks=ack, status="success")
            left, key, right = frame(encode_header(header)).partition(b',"s":%b' % digits)
            around[-1] += left + key.removesuffix(digits)
            around.append(right)
        return around


def wants(header: Header, ack: str) -> bool:
    """Return whether a command requests an ack of some type."""
    acks = header.acks
    if acks is None:
        return False
    return ack in (_names(acks) if len(acks) <= _MAX_KEPT_LENGTH else _names_anew(acks))


def acknowledge(session: Session, header: Header, ack: str, **keys: str | int | None) -> None:
    """Send a successful ack, if the command requests its type.

    Args:
        session: the connection that sent the command.
        header: the command's header.
        ack: the type of ack.
        keys: further fields of the ack's header.
    """
    if wants(header, ack):
        session.send(_ack(header, ack, "success", keys))


def acknowledge_late(session: Session, header: Header, problem: RecordStoreError | None) -> None:
    """Send the `persisted` ack, or the failure, unless the client has disconnected meanwhile."""
    if not session.is_open:
        return
    if problem is None:
        session.send(success(header, "persisted", sequence=header.sequence))
    else:
        session.send(failure(header, "persisted", NOT_STORED, str(problem)))


def fail_sequences(session: Session, sequences: Iterable[bytes], detail: str) -> None:
    """Send failures of commands that were executed but may not be on stable storage.

    Args:
        session: the connection that sent them.
        sequences: their sequence numbers, in digits.
        detail: the cause.
    """
    for digits in sequences:
        session.send(
            failure(Header("publish", sequence=int(digits)), "persisted", NOT_STORED, detail)
        )


def success(header: Header, ack: str, **keys: str | int | None) -> Header:
    """Return the header of a successful ack. See `acknowledge`."""
    return _ack(header, ack, "success", keys)


def acks_among(header: Header, possible: Iterable[str]) -> tuple[str, ...]:
    """Return those of some types of ack that a command requests, in their order."""
    return tuple(ack for ack in possible if wants(header, ack))


def fail(session: Session, header: Header, ack: str, reason: str, detail: str) -> None:
    """Send a failure ack, if the command requests its type.

    Args:
        session: the connection that sent the command.
        header: the command's header.
        ack: the type of ack.
        reason: the phrase that clients know.
        detail: the problem, and the expectation.
    """
    if wants(header, ack):
        session.send(failure(header, ack, reason, detail))


def failure(header: Header, ack: str, reason: str, detail: str, **keys: str | int | None) -> Header:
    """Return the header of a failure ack, with further fields. See `fail`."""
    keys |= {"reason": reason, "detail": detail, "sequence": header.sequence}
    return _ack(header, ack, "failure", keys)


def _ack(header: Header, ack: str, status: str, keys: dict[str, str | int | None]) -> Header:
    answer = Header("ack", command_id=header.command_id, acks=ack, status=status)
    for key, value in keys.items():  # keyword arguments to the constructor take twice as long
        setattr(answer, key, value)
    return answer


def _names_anew(acks: str) -> tuple[str, ...]:
    return tuple([name.strip() for name in acks.split(",")])


_names: Final = lru_cache(maxsize=256)(_names_anew)
