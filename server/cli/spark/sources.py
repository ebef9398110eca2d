"""Sources of messages to publish: standard input, a plain file or a zip file."""

from __future__ import annotations

import time
import zipfile
from collections.abc import Callable, Iterator
from io import BufferedIOBase
from itertools import takewhile
from typing import BinaryIO, Final

import msgspec

from amperage.client.limits import MAX_BODY_SIZE
from server.log.template import printable

_READ_SIZE: Final = 256 * 1024
_ZIP_BATCH: Final = 256
_STANDARD_INPUT: Final = 0
_BODY_SHOWN: Final = 80
"""Bytes of a message that a warning quotes."""

MessageBatches = Iterator[list[bytes]]
"""Batches of messages, as they become available."""


class MessageSourceError(Exception):
    """The messages cannot be read; the text has the reason."""


def read_messages(path: str | None, delimiter: int) -> MessageBatches:
    """Yield messages in batches.

    Args:
        path: a file, plain or zip; None reads standard input.
        delimiter: the byte that ends a message, in a plain file and on standard input.

    Raises:
        MessageSourceError: the file cannot be read, is a zip file of another layout, or has a
            message that is too large to be sent. The messages before that have been yielded.
    """
    count = 0
    for batch in _read_messages(path, bytes([delimiter])):
        fitting = list(takewhile(lambda message: len(message) <= MAX_BODY_SIZE, batch))
        count += len(fitting)
        yield fitting
        if len(fitting) < len(batch):
            raise MessageSourceError(
                f"message {count + 1} of {path or 'standard input'} has"
                f" {len(batch[len(fitting)])} bytes, expected {MAX_BODY_SIZE} at most; is the"
                " delimiter the right one?"
            )


def _read_messages(path: str | None, separator: bytes) -> MessageBatches:
    try:
        if path is None:
            with open(_STANDARD_INPUT, "rb", closefd=False) as stream:
                yield from split_messages(stream, separator)
            return
        with open(path, "rb") as file:
            if _is_zip(file):
                yield from _zip_messages(path, file)
            else:
                yield from split_messages(file, separator)
    except (OSError, zipfile.BadZipFile) as error:
        cause = getattr(error, "strerror", None) or error
        raise MessageSourceError(f"cannot read {path or 'standard input'}: {cause}") from None


def split_messages(stream: BufferedIOBase, separator: bytes) -> MessageBatches:
    """Split a stream into messages; skip empty ones.

    Args:
        stream: the stream to read.
        separator: the byte that ends a message; optional after the last message.

    Yields:
        The messages that one read completed, so that messages from a pipe are published as they
        arrive.
    """
    unfinished: list[bytes] = []
    while chunk := stream.read1(_READ_SIZE):
        first, *others = chunk.split(separator)
        unfinished.append(first)
        if others:
            messages = [b"".join(unfinished), *others]
            unfinished = [messages.pop()]
            yield [message for message in messages if message]
    last = b"".join(unfinished)
    if last:
        yield [last]


def _is_zip(file: BinaryIO) -> bool:
    """Return True if the content begins like a zip file; a message may well end like one."""
    start = file.read(4)
    file.seek(0)
    return start in (b"PK\x03\x04", b"PK\x05\x06")


def _zip_messages(path: str, file: BinaryIO) -> MessageBatches:
    """Yield the messages of a zip file: members 1, 2, 3 ... at its top level, each a message."""
    with zipfile.ZipFile(file) as archive:
        names = set(archive.namelist())
        numbers = range(1, len(names) + 1)
        missing = next((number for number in numbers if str(number) not in names), None)
        if missing is not None:
            raise MessageSourceError(
                f"{path} has no member {missing}: expected one message per member,"
                f" named 1 to {len(names)}"
            )
        for start in range(0, len(numbers), _ZIP_BATCH):
            yield [archive.read(str(number)) for number in numbers[start : start + _ZIP_BATCH]]


def paced(
    batches: MessageBatches,
    rate: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> MessageBatches:
    """Yield messages one by one at a fixed rate.

    Short delays are caught up; after a pause of more than a second there is no burst.

    Args:
        batches: the messages.
        rate: messages per second.
        clock: returns the time in seconds.
        sleep: waits for a number of seconds.
    """
    due = clock()
    for batch in batches:
        for message in batch:
            now = clock()
            if now < due:
                sleep(due - now)
            elif now - due > 1:
                due = now
            yield [message]
            due += 1 / rate


def warn_of_invalid_json(batches: MessageBatches, warn: Callable[[str], object]) -> MessageBatches:
    """Pass messages on unchanged, and warn of the first one that is not valid JSON.

    The server accepts any body. A mistake in one would show only later, as a record without a key
    or a filter that does not match.

    Args:
        batches: the messages.
        warn: callback with the text of the warning, called at most once, before the message is
            passed on.
    """
    count = 0
    for batch in batches:
        for number, message in enumerate(batch, count + 1):
            if not _is_json(message):
                shown = printable(message[:_BODY_SHOWN])
                warn(
                    f"message {number} is not valid JSON. Where the server takes it as it is, keys"
                    f" and filters may not find its fields: {shown}"
                )
                yield batch
                yield from batches
                return
        count += len(batch)
        yield batch


def _is_json(message: bytes) -> bool:
    try:
        msgspec.json.decode(message, type=msgspec.Raw)
    except RecursionError:
        return True  # nested too deeply to validate
    except msgspec.DecodeError:
        return False
    return True
