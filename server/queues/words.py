"""What instances that share a queue say to one another, beside what they record.

Nothing of that has to arrive: an `Ask` without an answer is asked again.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from server.base.malformed import MALFORMED
from server.queues.events import Mark

MOST_ASKED: Final = 256
"""Messages that an `Ask` names."""


class Ask(msgspec.Struct, tag=1, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Whoever owns these messages may hand some of them on to the one that asks.

    Attributes:
        number: of this question.
        marks: the messages, the one wanted most first.
        most: how many of them are wanted.
    """

    number: int
    marks: list[Mark]
    most: int


class Answer(msgspec.Struct, tag=2, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What has come of a question; what is handed on comes by the log.

    Attributes:
        number: of the question.
        granted: how many messages are handed on.
        marks: messages that are not.
        turns: for each of these, how many times it has changed hands.
        owners: for each of these, who owns it.
    """

    number: int
    granted: int
    marks: list[Mark] = []
    turns: list[int] = []
    owners: list[str] = []


Word: TypeAlias = Ask | Answer

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final[msgspec.msgpack.Decoder[Word]] = msgspec.msgpack.Decoder(Word)


def encode_word(word: Word) -> bytes:
    """A word as bytes."""
    return _ENCODER.encode(word)


def decode_word(data: bytes) -> Word:
    """The word of some bytes.

    Raises:
        msgspec.MsgspecError: it is none.
    """
    try:
        word = _DECODER.decode(data)
    except MALFORMED as problem:
        raise msgspec.DecodeError(str(problem)) from problem
    if len(word.marks) > MOST_ASKED:
        raise msgspec.ValidationError(f"more than {MOST_ASKED} messages")
    if isinstance(word, Answer) and not len(word.marks) == len(word.turns) == len(word.owners):
        raise msgspec.ValidationError("not as many titles as messages")
    return word
