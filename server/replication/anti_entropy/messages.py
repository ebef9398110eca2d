"""The messages that two instances exchange when they compare their records.

    the one that asks                  the one that answers
    Survey            ->               goes through its records
                      <- Surveyed
    List              ->               goes through them once more, for the ranges that differ
                      <- Listed
    More              ->
                      <- Listed ...
    Look              ->               waits until it has everything up to `upto`
                      <- Looked
    Outcome           ->               has the result, too
    Again             ->               publishes its records of some keys again

MessagePack arrays; the first element is the number of the kind. Messages may be lost: an instance
gives up when its wait times out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

import msgspec

from server.replication.anti_entropy.digests import RecordState
from server.util.msgpack_errors import MSGPACK_ERRORS

MAX_COMPARISON_MESSAGE_SIZE: Final = 48_000
"""Maximum bytes of keys in a message; keeps each below the limit of a `ComparisonMessage`."""


class DigestRequest(
    msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag_field="k", tag=1
):
    """Requests a survey of the records of a topic.

    Attributes:
        number: of this comparison; messages with another number are stale.
        message_type: the topic's message type.
        topic: its name in the configuration.
    """

    number: int
    message_type: str
    topic: str


class DigestResponse(
    msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag_field="k", tag=2
):
    """The result of a survey.

    Attributes:
        number: see `DigestRequest`.
        records: number of records.
        sums: of the ranges of keys; see `states`.
    """

    number: int
    records: int
    sums: bytes


class DigestRefusal(
    msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag_field="k", tag=3
):
    """Reports that there is nothing to compare.

    Attributes:
        number: see `DigestRequest`.
        reason: for people.
    """

    number: int
    reason: str


class KeyListRequest(
    msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag_field="k", tag=4
):
    """Requests a list of the records in some ranges of keys.

    Attributes:
        number: see `DigestRequest`.
        ranges: their numbers.
    """

    number: int
    ranges: list[int]


class KeyListResponse(
    msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag_field="k", tag=5
):
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


class KeyListContinuation(
    msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag_field="k", tag=6
):
    """Requests the next part of the list.

    Attributes:
        number: see `DigestRequest`.
    """

    number: int


class StateRequest(
    msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag_field="k", tag=7
):
    """Requests the present states of some keys.

    Attributes:
        number: see `DigestRequest`.
        look: number of this request; the answer has it, too.
        upto: everything up to this txid of the asking instance is to be received before.
        keys: the keys.
        states: the state of each at the asking instance.
    """

    number: int
    look: int
    upto: int
    keys: list[str]
    states: list[RecordState]


class StateResponse(
    msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag_field="k", tag=8
):
    """The states of some keys.

    Attributes:
        number: see `DigestRequest`.
        look: see `StateRequest`.
        upto: the txid of the answering instance at that moment.
        states: of each key.
        had: for each key, whether the message that the asking instance shows has been received.
    """

    number: int
    look: int
    upto: int
    states: list[RecordState]
    had: list[bool]


class ComparisonReport(
    msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag_field="k", tag=9
):
    """The result of a comparison, for the instance that has answered.

    Attributes:
        number: see `DigestRequest`.
        message_type: see `DigestRequest`.
        topic: see `DigestRequest`.
        records: number at the asking instance, and at the answering one.
        differing: number of keys that are not the same.
        unclear: number of undecided keys.
        keys: some of those that differ.
    """

    number: int
    message_type: str
    topic: str
    records: tuple[int, int]
    differing: int
    unclear: int
    keys: list[str]


class RepublishRequest(
    msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag_field="k", tag=10
):
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
    rest = list(records)
    while rest:
        size = place = 0
        while place < len(rest) and (
            not place or size + 4 * len(rest[place][0]) <= MAX_COMPARISON_MESSAGE_SIZE
        ):
            size += 4 * len(rest[place][0]) + _DIGEST_BYTES
            place += 1
        some, rest = rest[:place], rest[place:]
        yield RepublishRequest(
            message_type, topic, [key for key, _ in some], [one for _, one in some]
        )


class ComparisonMessageError(Exception):
    """The bytes received are no message of a comparison; the text gives the reason."""


def pack(word: ComparisonMessage) -> bytes:
    """Return a message as bytes."""
    return _ENCODER.encode(word)


def unpack(data: bytes) -> ComparisonMessage:
    """Parse a message.

    Raises:
        ComparisonMessageError: it is invalid.
    """
    try:
        word = _DECODER.decode(data)
    except MSGPACK_ERRORS as problem:
        raise ComparisonMessageError(str(problem)) from problem
    lists = {
        KeyListResponse: lambda one: (one.keys, one.digests),
        StateRequest: lambda one: (one.keys, one.states),
        StateResponse: lambda one: (one.states, one.had),
        RepublishRequest: lambda one: (one.keys, one.digests),
    }.get(type(word))
    if lists is not None:
        first, second = lists(word)
        if len(first) != len(second):
            raise ComparisonMessageError(f"{len(first)} and {len(second)} of what belongs together")
    return word
