"""Messages between instances that share a queue, beside the events that they record.

None of them has to arrive: an `Ask` without an answer is retried.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from server.queues.core.events import Mark
from server.util.msgpack_errors import MALFORMED

MOST_ASKED: Final = 256
"""Maximum number of messages in an `Ask`."""


class Ask(msgspec.Struct, tag=1, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A request to the owner of messages to transfer some of them to the sender.

    Attributes:
        number: the number of the request.
        marks: the messages, the most wanted first.
        most: how many of them are wanted.
    """

    number: int
    marks: list[Mark]
    most: int


class Answer(msgspec.Struct, tag=2, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The answer to a request; transferred messages arrive through the log.

    Attributes:
        number: the number of the request.
        granted: how many messages are transferred.
        marks: messages that are not transferred.
        turns: for each of these, the number of its transfers.
        owners: for each of these, its owner.
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
    """Encode a message to another instance."""
    return _ENCODER.encode(word)


def decode_word(data: bytes) -> Word:
    """Decode a message from another instance.

    Raises:
        msgspec.MsgspecError: the bytes are not a valid message.
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
