"""What two instances say to each other when they compare their records.

    the one that asks                  the one that answers
    Survey            ->               goes through its records
                      <- Surveyed
    List              ->               goes through them once more, for the ranges that differ
                      <- Listed
    More              ->
                      <- Listed ...
    Look              ->               waits until it has everything up to `upto`
                      <- Looked
    Outcome           ->               knows it, too
    Again             ->               publishes once more what it has of some keys

MessagePack arrays; the first element is the number of the kind. Words may be lost: who waits for
one in vain gives up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

import msgspec

from server.base.malformed import MALFORMED
from server.replication.states import State

MOST_BYTES: Final = 48_000
"""Bytes of keys in a word, by which all of them stay below what a word may have."""


class Survey(
    msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag_field="k", tag=1
):
    """Go through the records of a topic, and say what there is.

    Attributes:
        number: of this comparison; words about another one are too late.
        message_type: the topic's message type.
        topic: its name in the configuration.
    """

    number: int
    message_type: str
    topic: str


class Surveyed(
    msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag_field="k", tag=2
):
    """What a survey has found.

    Attributes:
        number: see `Survey`.
        records: how many there are.
        sums: of the ranges of keys; see `states`.
    """

    number: int
    records: int
    sums: bytes


class Unable(
    msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag_field="k", tag=3
):
    """There is nothing to be compared.

    Attributes:
        number: see `Survey`.
        reason: for people.
    """

    number: int
    reason: str


class List(
    msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag_field="k", tag=4
):
    """Say which records there are in some ranges of keys.

    Attributes:
        number: see `Survey`.
        ranges: their numbers.
    """

    number: int
    ranges: list[int]


class Listed(
    msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag_field="k", tag=5
):
    """Some records.

    Attributes:
        number: see `Survey`.
        keys: what tells them apart.
        digests: of each.
        is_last: there are no more.
    """

    number: int
    keys: list[str]
    digests: list[int]
    is_last: bool


class More(
    msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag_field="k", tag=6
):
    """Go on with the list.

    Attributes:
        number: see `Survey`.
    """

    number: int


class Look(
    msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag_field="k", tag=7
):
    """Say what there is of some keys now.

    Attributes:
        number: see `Survey`.
        look: of this look; the answer has it, too.
        upto: everything up to this txid of the asking instance is to be taken in before.
        keys: which keys.
        states: what there is of each at the asking instance.
    """

    number: int
    look: int
    upto: int
    keys: list[str]
    states: list[State]


class Looked(
    msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag_field="k", tag=8
):
    """What there is of some keys.

    Attributes:
        number: see `Survey`.
        look: see `Look`.
        upto: at this txid of the answering instance.
        states: of each key.
        had: for each key, whether the message has come that the asking instance shows.
    """

    number: int
    look: int
    upto: int
    states: list[State]
    had: list[bool]


class Outcome(
    msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag_field="k", tag=9
):
    """What has come of a comparison, for the instance that has answered.

    Attributes:
        number: see `Survey`.
        message_type: see `Survey`.
        topic: see `Survey`.
        records: of the asking instance, those of the answering one.
        differing: how many keys are not the same.
        unclear: of how many it could not be said.
        keys: some of those that differ.
    """

    number: int
    message_type: str
    topic: str
    records: tuple[int, int]
    differing: int
    unclear: int
    keys: list[str]


class Again(
    msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, tag_field="k", tag=10
):
    """Publish some records once more, unless they have changed.

    Attributes:
        message_type: see `Survey`.
        topic: see `Survey`.
        keys: which.
        digests: what they were.
    """

    message_type: str
    topic: str
    keys: list[str]
    digests: list[int]


Word: TypeAlias = (
    Survey | Surveyed | Unable | List | Listed | More | Look | Looked | Outcome | Again
)

_DIGEST_BYTES: Final = 16
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final[msgspec.msgpack.Decoder[Word]] = msgspec.msgpack.Decoder(Word)


def again_words(
    message_type: str, topic: str, records: Iterable[tuple[str, int]]
) -> Iterator[Again]:
    """Words that ask for records to be published once more.

    Args:
        message_type: the topic's message type.
        topic: its name in the configuration.
        records: keys and digests.
    """
    rest = list(records)
    while rest:
        size = place = 0
        while place < len(rest) and (not place or size + 4 * len(rest[place][0]) <= MOST_BYTES):
            size += 4 * len(rest[place][0]) + _DIGEST_BYTES
            place += 1
        some, rest = rest[:place], rest[place:]
        yield Again(message_type, topic, [key for key, _ in some], [one for _, one in some])


class WordError(Exception):
    """What has come is no word; the text says how."""


def pack(word: Word) -> bytes:
    """A word as bytes."""
    return _ENCODER.encode(word)


def unpack(data: bytes) -> Word:
    """Read a word.

    Raises:
        WordError: it is none.
    """
    try:
        word = _DECODER.decode(data)
    except MALFORMED as problem:
        raise WordError(str(problem)) from problem
    lists = {
        Listed: lambda one: (one.keys, one.digests),
        Look: lambda one: (one.keys, one.states),
        Looked: lambda one: (one.states, one.had),
        Again: lambda one: (one.keys, one.digests),
    }.get(type(word))
    if lists is not None:
        first, second = lists(word)
        if len(first) != len(second):
            raise WordError(f"{len(first)} and {len(second)} of what belongs together")
    return word
