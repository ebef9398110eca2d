"""Acknowledgements: reads the types that a command requests, and sends them.

Source: AMPS Command Reference, ack: Status from Server.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from amperage.wire.header import Header, encode_header

if TYPE_CHECKING:
    from server.engine.session import Session
    from server.storage.sow.store import RecordStoreError


_MAX_KEPT_LENGTH: Final = 64
"""Characters; longer lists are not cached. Clients repeat the same short lists."""

_ACK_START: Final = b'{"c":"ack"'

NOT_STORED: Final = "not stored"
"""The reason of a failure: the effect of a command is not on stable storage."""

NOT_READABLE: Final = "not readable"
"""The reason of a failure: records are lost, or cannot be read from the disk."""


class AckFrames:
    """Frames the acks of commands that differ by their command id and sequence number only.

    Args:
        ack_types: the types of ack, in the order in which they are sent.
        keys: further fields of their headers, behind the status.
    """

    def __init__(self, ack_types: Sequence[str], **keys: str | int | None) -> None:
        self.ack_types = ack_types
        headers = [encode_header(_ack(Header(), ack, "success", keys)) for ack in ack_types]
        self._endings = [header.removeprefix(_ACK_START) for header in headers]
        self._parts: dict[int, list[bytes]] = {}  # the bytes around id and number, by their length

    def frame(
        self, command_ids: Sequence[bytes], sequences: Sequence[bytes], count: int
    ) -> list[bytes]:
        """Return the successful acks of commands, those of each command in one piece.

        Args:
            command_ids: their command ids, as in their headers; empty where one has none, or if
                none has one.
            sequences: their sequence numbers, in digits; likewise.
            count: the number of commands.
        """
        acks: list[bytes] = []
        for index in range(count):
            keys = b',"s":' + sequences[index] if sequences else b""
            if command_ids and (command_id := command_ids[index]):
                keys = b',"cid":"' + command_id + b'"' + keys
            parts = self._parts.get(len(keys))
            if parts is None:
                parts = self._parts[len(keys)] = self._frame_parts(len(keys))
            acks.append(keys.join(parts))
        return acks

    def _frame_parts(self, length: int) -> list[bytes]:
        """Return the bytes around the keys of a command, which have this length."""
        parts = [b""]
        for ending in self._endings:
            size = len(_ACK_START) + length + len(ending)
            parts[-1] += size.to_bytes(4, "big") + _ACK_START
            parts.append(ending)
        return parts


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


def fail_sequences(
    session: Session, sequences: Iterable[bytes], detail: str, command_ids: Iterable[bytes] = ()
) -> None:
    """Send failures of commands that were executed but may not be on stable storage.

    Args:
        session: the connection that sent them.
        sequences: their sequence numbers, in digits; empty for none.
        detail: the cause.
        command_ids: their command ids, empty for none; or nothing if none has one.
    """
    for digits, command_id in zip_longest(sequences, command_ids, fillvalue=b""):
        header = Header(
            "publish",
            command_id=command_id.decode() or None,
            sequence=int(digits) if digits else None,
        )
        session.send(failure(header, "persisted", NOT_STORED, detail))


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
