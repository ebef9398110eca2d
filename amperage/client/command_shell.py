"""The parts common to the commands of the blocking and the asyncio client; they do no I/O."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from amperage.client.arguments import MessageBody, all_bodies, body_bytes, seconds
from amperage.client.errors import NotConnectedError, PublishStoreFullError
from amperage.client.pending_requests import PendingRequest, StreamInbox
from amperage.client.protocol import ClientProtocol
from amperage.client.publish_store import PublishStorage
from amperage.client.sequence_numbers import PublishSequence
from amperage.client.serialization import (
    Decode,
    Decoder,
    Encoder,
    decode_function,
    encode_function,
    encoded_value,
)
from amperage.client.statistics import ClientStatistics, TrafficCounters
from amperage.client.time_limit import TimeLimit


class WaitCondition(NamedTuple):
    """A condition that a command waits for.

    Attributes:
        is_met: returns whether the condition is met.
        description: the name of the expected event, for the error of a timeout.
    """

    is_met: Callable[[], bool]
    description: str


class CommandShell(ABC):
    """The common base of `BlockingShell` and `AsyncShell`.

    Args:
        timeout: default timeout of a call, in seconds.
        encoder: the default encoder of published values; None for none.
        decoder: the default decoder of received bodies; None for none.
    """

    def __init__(
        self, timeout: float, encoder: Encoder | None = None, decoder: Decoder | None = None
    ) -> None:
        self._timeout = seconds("timeout", timeout)
        self._encode = encode_function(encoder)
        self._decode = decode_function(decoder)
        self._traffic = TrafficCounters()
        self._is_draining = False

    @property
    @abstractmethod
    def is_connected(self) -> bool:
        """Whether there is a session: the client is connected and logged on."""

    @property
    @abstractmethod
    def _protocol(self) -> ClientProtocol:
        """The protocol of the current connection. Blocking clients use it with their lock held."""

    @abstractmethod
    def _set_silence_timeout(self, allowed: float) -> None:
        """Start to consider the server gone after `allowed` seconds of silence."""

    def _encoded(
        self, topic: str, body: MessageBody | Any, encoder: Encoder | None = None
    ) -> MessageBody:
        """Return the body of a message: bytes and texts as they are, other values encoded."""
        if isinstance(body, bytes | str | bytearray | memoryview):
            return body
        encode = self._encode if encoder is None else encode_function(encoder)
        if encode is None:
            return body_bytes(body)  # raises: there is no encoder
        return encoded_value(topic, body, encode)

    def _encoded_all(
        self, topic: str, bodies: Iterable[MessageBody | Any], encoder: Encoder | None
    ) -> Iterable[MessageBody]:
        if encoder is None and self._encode is None:
            return all_bodies(bodies)
        return (self._encoded(topic, body, encoder) for body in all_bodies(bodies))

    def _decode_for(self, decoder: Decoder | None) -> Decode | None:
        return self._decode if decoder is None else decode_function(decoder)

    def _read_statistics(self) -> ClientStatistics:
        """Return the statistics. Blocking clients call this with their lock held."""
        try:
            protocol = self._protocol
        except NotConnectedError:
            outstanding = waiting = streams = 0
        else:
            numbering = protocol.numbering
            outstanding = len(protocol.deliveries if numbering is None else numbering.store)
            waiting, streams = protocol.queued_messages, protocol.inbox_count
        traffic = self._traffic
        return ClientStatistics(
            messages_published=traffic.messages_published,
            messages_received=traffic.messages_received,
            bytes_sent=traffic.bytes_sent,
            bytes_received=traffic.bytes_received,
            reconnects=max(0, traffic.sessions - 1),
            outstanding=outstanding,
            waiting=waiting,
            streams=streams,
        )

    def _reported_condition(self) -> WaitCondition:
        """Return the condition that the delivery reports requested so far were made."""
        protocol = self._protocol
        last_serial = protocol.deliveries.last_serial
        return WaitCondition(
            lambda: protocol.deliveries.is_reported_up_to(last_serial) or protocol.is_closed,
            "the delivery reports",
        )

    def _resolve_timeout(self, timeout: float | None) -> float:
        return self._timeout if timeout is None else seconds("timeout", timeout)

    def _time_limit(self, timeout: float | TimeLimit | None) -> TimeLimit:
        return (
            timeout if isinstance(timeout, TimeLimit) else TimeLimit(self._resolve_timeout(timeout))
        )

    def _store_answered_condition(self, numbering: PublishSequence) -> WaitCondition:
        """Return the condition that all published messages are answered, or no longer can be."""
        protocol = self._protocol
        last_sequence = numbering.store.last_sequence
        return WaitCondition(
            lambda: numbering.is_answered_up_to(last_sequence) or protocol.is_closed,
            f"the acknowledgement of message {last_sequence}",
        )

    def _find_full_store(self) -> PublishStorage | None:
        """Return the publish store if it has no room for another message."""
        numbering = self._protocol.numbering
        return None if numbering is None or not numbering.store.is_full else numbering.store

    def _store_room_condition(self, store: PublishStorage) -> WaitCondition:
        """Return the condition that the store has room, or that the connection is closed."""
        protocol = self._protocol
        return WaitCondition(lambda: not store.is_full or protocol.is_closed, "room")

    def _store_full_error(self, store: PublishStorage) -> PublishStoreFullError:
        return PublishStoreFullError(
            f"no room in the publish store within {self._timeout:g} seconds:"
            f" {len(store)} messages are not known to be persisted"
        )


def inbox_of(request: PendingRequest) -> StreamInbox:
    """Return the inbox of a request, for a stream.

    Raises:
        ValueError: the command has no messages.
    """
    if request.inbox is None:
        raise ValueError(f"{request.command} has no messages")
    return request.inbox


def not_connected() -> NotConnectedError:
    """Return the error for a command before `connect` or after `close`."""
    return NotConnectedError("not connected: call connect() first")
