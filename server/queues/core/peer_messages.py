"""Messages between instances that share a queue, beside the events that they record.

None of them has to arrive: a `TransferRequest` without a response is retried.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from server.queues.core.events import PublisherSequence
from server.util.peer_struct import MSGPACK_ERRORS

MAX_REQUESTED_MESSAGES: Final = 256
"""Maximum number of messages in a `TransferRequest`."""


class TransferRequest(
    msgspec.Struct, tag=1, frozen=True, array_like=True, forbid_unknown_fields=True
):
    """A request to the owner of messages to transfer some of them to the sender.

    Attributes:
        number: the number of the request.
        bookmarks: the messages, in order of preference.
        max_transferred: the maximum number of them to transfer.
    """

    number: int
    bookmarks: list[PublisherSequence]
    max_transferred: int


class TransferResponse(
    msgspec.Struct, tag=2, frozen=True, array_like=True, forbid_unknown_fields=True
):
    """The response to a request; transferred messages arrive through the log.

    Attributes:
        number: the number of the request.
        granted_count: how many messages are transferred.
        bookmarks: messages that are not transferred.
        transfer_counts: for each of these, the number of its transfers.
        owners: for each of these, its owner.
    """

    number: int
    granted_count: int
    bookmarks: list[PublisherSequence] = []
    transfer_counts: list[int] = []
    owners: list[str] = []


QueuePeerMessage: TypeAlias = TransferRequest | TransferResponse

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final[msgspec.msgpack.Decoder[QueuePeerMessage]] = msgspec.msgpack.Decoder(
    QueuePeerMessage
)


def encode_peer_message(message: QueuePeerMessage) -> bytes:
    """Encode a message to another instance."""
    return _ENCODER.encode(message)


def decode_peer_message(data: bytes) -> QueuePeerMessage:
    """Decode a message from another instance.

    Raises:
        msgspec.MsgspecError: the bytes are not a valid message.
    """
    try:
        message = _DECODER.decode(data)
    except MSGPACK_ERRORS as problem:
        raise msgspec.DecodeError(str(problem)) from problem
    if len(message.bookmarks) > MAX_REQUESTED_MESSAGES:
        raise msgspec.ValidationError(f"more than {MAX_REQUESTED_MESSAGES} messages")
    if isinstance(message, TransferResponse) and not len(message.bookmarks) == len(
        message.transfer_counts
    ) == len(message.owners):
        raise msgspec.ValidationError("not as many titles as messages")
    return message
