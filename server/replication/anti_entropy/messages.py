"""The messages that two instances exchange when they compare their records.

    the requesting instance               the responding instance
    DigestRequest        ->               computes digests of its records
                         <- DigestResponse
    KeyListRequest       ->               lists the records of the ranges that differ
                         <- KeyListResponse
    KeyListContinuation  ->
                         <- KeyListResponse ...
    StateRequest         ->               waits until it has everything up to `upto`
                         <- StateResponse
    ComparisonReport     ->               has the result, too
    RepublishRequest     ->               publishes its records of some keys again

MessagePack arrays; the first element is the number of the kind. Messages may be lost: an instance
fails the comparison when its wait times out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

import msgspec

from server.replication.anti_entropy.digests import RecordState
from server.util.peer_struct import MSGPACK_ERRORS, PeerStruct

MAX_COMPARISON_MESSAGE_SIZE: Final = 48_000
"""Maximum bytes of keys in a message; keeps each below the limit of a `ComparisonMessage`."""


class DigestRequest(PeerStruct, frozen=True, tag_field="k", tag=1):
    """Requests the digests of the records of a topic.

    Attributes:
        number: of this comparison; messages with another number are stale.
        message_type: the topic's message type.
        topic: its name in the configuration.
    """

    number: int
    message_type: str
    topic: str


class DigestResponse(PeerStruct, frozen=True, tag_field="k", tag=2):
    """The digests of the records of a topic.

    Attributes:
        number: see `DigestRequest`.
        records: number of records.
        sums: of the ranges of keys; see `RangeDigests`.
    """

    number: int
    records: int
    sums: bytes


class DigestRefusal(PeerStruct, frozen=True, tag_field="k", tag=3):
    """Reports that there is nothing to compare.

    Attributes:
        number: see `DigestRequest`.
        reason: for people.
    """

    number: int
    reason: str


class KeyListRequest(PeerStruct, frozen=True, tag_field="k", tag=4):
    """Requests a list of the records in some ranges of keys.

    Attributes:
        number: see `DigestRequest`.
        ranges: their numbers.
    """

    number: int
    ranges: list[int]


class KeyListResponse(PeerStruct, frozen=True, tag_field="k", tag=5):
    """Some records.

    Attributes:
        number: see `DigestRequest`.
        keys: the keys of the records.
        digests: of each.
        is_last: there are no more.
    """

    number: int
    keys: list[str]
    digests: list[int]
    is_last: bool


class KeyListContinuation(PeerStruct, frozen=True, tag_field="k", tag=6):
    """Requests the next part of the list.

    Attributes:
        number: see `DigestRequest`.
    """

    number: int


class StateRequest(PeerStruct, frozen=True, tag_field="k", tag=7):
    """Requests the present states of keys.

    Attributes:
        number: see `DigestRequest`.
        request_number: number of this request; the response has it, too.
        upto: everything up to this txid of the requesting instance is to be received before.
        keys: the keys.
        states: the state of each at the requesting instance.
    """

    number: int
    request_number: int
    upto: int
    keys: list[str]
    states: list[RecordState]


class StateResponse(PeerStruct, frozen=True, tag_field="k", tag=8):
    """The states of keys.

    Attributes:
        number: see `DigestRequest`.
        request_number: see `StateRequest`.
        upto: the last txid of the responding instance at that moment.
        states: of each key.
        received: for each key, whether the message that the requesting instance shows has been
            received.
    """

    number: int
    request_number: int
    upto: int
    states: list[RecordState]
    received: list[bool]


class ComparisonReport(PeerStruct, frozen=True, tag_field="k", tag=9):
    """The result of a comparison, for the responding instance.

    Attributes:
        number: see `DigestRequest`.
        message_type: see `DigestRequest`.
        topic: see `DigestRequest`.
        records: number at the requesting instance, and at the responding one.
        differing: number of keys that are not the same.
        unclear: number of undecided keys.
        keys: some of the differing keys.
    """

    number: int
    message_type: str
    topic: str
    records: tuple[int, int]
    differing: int
    unclear: int
    keys: list[str]


class RepublishRequest(PeerStruct, frozen=True, tag_field="k", tag=10):
    """Requests that some records be published again, unless they have changed.

    Attributes:
        message_type: see `DigestRequest`.
        topic: see `DigestRequest`.
        keys: the keys of the records.
        digests: their digests at the time of the comparison.
    """

    message_type: str
    topic: str
    keys: list[str]
    digests: list[int]


ComparisonMessage: TypeAlias = (
    DigestRequest
    | DigestResponse
    | DigestRefusal
    | KeyListRequest
    | KeyListResponse
    | KeyListContinuation
    | StateRequest
    | StateResponse
    | ComparisonReport
    | RepublishRequest
)

_DIGEST_BYTES: Final = 16
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final[msgspec.msgpack.Decoder[ComparisonMessage]] = msgspec.msgpack.Decoder(
    ComparisonMessage
)


def make_republish_requests(
    message_type: str, topic: str, records: Iterable[tuple[str, int]]
) -> Iterator[RepublishRequest]:
    """Yield messages that request that records be published again.

    Args:
        message_type: the topic's message type.
        topic: its name in the configuration.
        records: keys and digests.
    """
    remaining = list(records)
    while remaining:
        size = count = 0
        while count < len(remaining) and (
            not count or size + 4 * len(remaining[count][0]) <= MAX_COMPARISON_MESSAGE_SIZE
        ):
            size += 4 * len(remaining[count][0]) + _DIGEST_BYTES
            count += 1
        batch, remaining = remaining[:count], remaining[count:]
        yield RepublishRequest(
            message_type, topic, [key for key, _ in batch], [digest for _, digest in batch]
        )


class ComparisonMessageError(Exception):
    """The bytes received are no message of a comparison; the text gives the reason."""


def pack(message: ComparisonMessage) -> bytes:
    """Return a message as bytes."""
    return _ENCODER.encode(message)


def unpack(data: bytes) -> ComparisonMessage:
    """Parse a message.

    Raises:
        ComparisonMessageError: it is invalid.
    """
    try:
        message = _DECODER.decode(data)
    except MSGPACK_ERRORS as problem:
        raise ComparisonMessageError(str(problem)) from problem
    lists = {
        KeyListResponse: lambda each: (each.keys, each.digests),
        StateRequest: lambda each: (each.keys, each.states),
        StateResponse: lambda each: (each.states, each.received),
        RepublishRequest: lambda each: (each.keys, each.digests),
    }.get(type(message))
    if lists is not None:
        first, second = lists(message)
        if len(first) != len(second):
            raise ComparisonMessageError(f"{len(first)} and {len(second)} items in parallel lists")
    return message
