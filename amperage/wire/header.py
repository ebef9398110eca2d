"""The header of a command or message, and the names of its keys on the wire.

Headers are flat JSON objects of strings, numbers and booleans. Unknown keys are ignored, numbers
may be quoted. One type serves both directions and both ends; keys that are not set are not written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Final

import msgspec

from amperage.wire.framing import MAX_AMPS_FRAME_SIZE, FrameError, split_at_header_end

_WIRE_KEYS: Final = {
    "command": "c",
    "command_id": "cid",
    "sequence": "s",
    "bookmark": "bm",
    "topic": "t",
    "sow_key": "k",
    "acks": "a",
    "short_filter": "f",
    "short_options": "o",
    "short_version": "v",
    "correlation_id": "x",
    "expiration": "e",
    "batch_size": "bs",
    "length": "l",
    "lease_period": "lp",
    "timestamp": "ts",
    "message_type": "mt",
    "password": "pw",
    "long_filter": "filter",
    "long_options": "opts",
    "long_version": "version",
    "order_by": "orderby",
}


_LARGEST: Final = (1 << 63) - 1

HeaderNumber = Annotated[int, msgspec.Meta(ge=-_LARGEST, le=_LARGEST)]
"""A number in a header; larger ones cannot be stored or counted."""
HeaderNatural = Annotated[int, msgspec.Meta(ge=0, le=_LARGEST)]
"""A number that is stored with a message."""


class Header(msgspec.Struct, omit_defaults=True, repr_omit_defaults=True, rename=_WIRE_KEYS):
    """The header of one frame (AMPS Command Reference, AMPS Protocol).

    Attributes are named after the reference's header fields. A few keys have a short and a long
    spelling; the properties `filter`, `options` and `version` return the one that was sent.
    """

    command: str = ""
    command_id: str | None = None
    sequence: HeaderNatural | None = None
    bookmark: str | None = None
    client_name: str | None = None
    topic: str | None = None
    sub_id: str | None = None
    sids: str | None = None
    query_id: str | None = None
    sow_key: str | None = None
    sow_keys: str | None = None
    acks: str | None = None
    status: str | None = None
    reason: str | None = None
    detail: str | None = None
    short_filter: str | None = None
    long_filter: str | None = None
    short_options: str | None = None
    long_options: str | None = None
    correlation_id: str | None = None
    expiration: HeaderNatural | None = None
    order_by: str | None = None
    batch_size: HeaderNumber | None = None
    top_n: HeaderNumber | None = None
    skip_n: HeaderNumber | None = None
    timestamp: str | None = None
    lease_period: str | None = None
    message_type: str | None = None
    user_id: str | None = None
    password: str | None = None
    short_version: str | None = None
    long_version: str | None = None
    matches: HeaderNumber | None = None
    topic_matches: HeaderNumber | None = None
    records_returned: HeaderNumber | None = None
    records_inserted: HeaderNumber | None = None
    records_updated: HeaderNumber | None = None
    records_deleted: HeaderNumber | None = None
    length: HeaderNumber | None = None
    data_only: bool | None = None
    send_empty: bool | None = None
    send_keys: bool | None = None
    send_matching_ids: bool | None = None
    send_oof: bool | None = None
    grace_period: HeaderNatural | None = None

    @property
    def filter(self) -> str | None:
        """The content filter."""
        return self.short_filter if self.short_filter is not None else self.long_filter

    @property
    def options(self) -> str | None:
        """The command's options, comma-separated."""
        return self.short_options if self.short_options is not None else self.long_options

    @property
    def version(self) -> str | None:
        """The version of the peer."""
        return self.short_version if self.short_version is not None else self.long_version


class HeaderError(ValueError):
    """A well-formed header with an invalid value of a key.

    Attributes:
        header: the other keys, so that the sender can get an answer.
    """

    def __init__(self, message: str, header: Header) -> None:
        super().__init__(message)
        self.header = header


MAX_NAME_LENGTH: Final = 1024
_LONGEST: Final = {
    "client_name": MAX_NAME_LENGTH,
    "user_id": MAX_NAME_LENGTH,
    "command_id": MAX_NAME_LENGTH,
    "topic": 65_535,
    "sow_key": 65_535,
    "correlation_id": 65_535,
    "sub_id": 1_000_000,  # these two may be lists
    "query_id": 1_000_000,
}
"""Maximum characters of texts that are stored, repeated in messages to other clients, or logged."""

_MAX_SHOWN_LENGTH: Final = 64
"""Maximum characters of an invalid value that are quoted in the error."""

_decode: Final = msgspec.json.Decoder(Header, strict=False).decode
_EMPTY: Final = b'""'
encode_header: Final = msgspec.json.Encoder().encode
"""Encodes a Header to bytes."""
json_text: Final = msgspec.json.encode
"""Encodes a text as a JSON string, quotes included: for headers that are concatenated."""


_REPLY_KEY_SEQUENCE: Final = re.compile(rb'[{,]"s":"?([0-9]{1,19})"?[,}]')
_REPLY_KEY: Final = re.compile(rb'"(c|cid|a)":"([^"\\]{0,256})"')
_LONG_NAMES: Final = {"p": "publish"}


def command_name(command: str) -> str:
    """Return the long name of a command, which may be shorter on the wire."""
    return _LONG_NAMES.get(command, command)


def is_plain_text(text: str) -> bool:
    """Return whether a text needs no escapes between the quotes of a JSON string."""
    return text.isascii() and text.isprintable() and '"' not in text and "\\" not in text


def decode_frame(
    header: bytes, body: bytes, longest: int = MAX_AMPS_FRAME_SIZE
) -> tuple[Header, bytes]:
    """Decode the header of a frame.

    Args:
        header: the header's bytes as the frame reader split them.
        body: the body's bytes as the frame reader split them.
        longest: the bytes to search for the end of a header with a brace in a string.

    Returns:
        The header, and the body (corrected if the reader had split at a brace in a string).

    Raises:
        FrameError: the header is not a flat JSON object.
        HeaderError: a key has an invalid value.
        LongHeaderError: the header is longer than `longest`.
    """
    try:
        decoded = _read(header)
    except (msgspec.DecodeError, UnicodeDecodeError):
        header, body = split_at_header_end(header, body, longest)
        try:
            decoded = _read(header)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            problem = _describe_decode_error(header, error)
            raise FrameError(f"the header cannot be read: {problem}") from None
    if len(header) > MAX_NAME_LENGTH:
        _check_lengths(decoded)
    return decoded, body


def _describe_decode_error(header: bytes, error: Exception) -> str:
    """Return the problem of a header and its place, without quoting it (see `FrameError`)."""
    try:
        header.decode()
    except UnicodeDecodeError as bad:
        return f"it is not in UTF-8: {bad.reason} (byte {bad.start})"
    return str(error)


def read_reply_keys(header: bytes) -> Header:
    """Return the keys for an answer from both ends of a header that is too long to be decoded."""
    ends = header[:4096] + header[-4096:]
    keys = {key.decode(): value.decode("latin-1") for key, value in _REPLY_KEY.findall(ends)}
    number = _REPLY_KEY_SEQUENCE.search(ends)
    return Header(
        command=keys.get("c", ""),
        command_id=keys.get("cid"),
        acks=keys.get("a"),
        sequence=None if number is None else int(number[1]),
    )


def _check_lengths(header: Header) -> None:
    """Check the lengths of texts.

    Raises:
        HeaderError: some are too long.
    """
    faults = {
        name: f"{_WIRE_KEYS.get(name, name)} has {len(text)} characters, expected {most} at most"
        for name, most in _LONGEST.items()
        if (text := getattr(header, name)) is not None and len(text) > most
    }
    if faults:
        short = msgspec.structs.replace(header, **dict.fromkeys(faults))
        raise HeaderError("; ".join(faults.values()), short)


def _read(header: bytes) -> Header:
    if _EMPTY in header:
        return _decode_leniently(header)
    try:
        return _decode(header)
    except msgspec.ValidationError:
        return _decode_leniently(header)


def _decode_leniently(header: bytes) -> Header:
    """Decode a header with bare numbers in place of texts, refusing values of neither type.

    Clients that always send the same keys leave unused ones empty: empty texts are ignored.
    """
    keys = msgspec.json.decode(header, type=dict[str, object])
    known: dict[str, object] = {}
    faults: list[str] = []
    for field in msgspec.structs.fields(Header):
        value = keys.get(field.encode_name)
        if value is None or value == "":
            continue
        read, expected = _READERS.get(field.type, (_as_text, "text"))
        try:
            known[field.encode_name] = read(value)
        except (KeyError, TypeError, ValueError, OverflowError):
            faults.append(f"{field.encode_name} is {_shown(value)}, expected {expected}")
    decoded = msgspec.convert(known, Header, str_keys=True)
    if faults:
        raise HeaderError("; ".join(faults), decoded)
    return decoded


def _shown(value: object) -> str:
    """Return an invalid value for the error text; only that of a number or a flag is quoted.

    In place of a text, the invalid value is a list or an object. It may be a password, so neither
    it nor its elements are quoted.
    """
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN_LENGTH else f"{text[:_MAX_SHOWN_LENGTH]}..."


def _as_number(value: object) -> int:
    number = int(value) if isinstance(value, str | int | float) else None
    if number is None or (isinstance(value, float) and number != value):
        raise TypeError
    if not -_LARGEST <= number <= _LARGEST:
        raise ValueError
    return number


def _as_natural(value: object) -> int:
    number = _as_number(value)
    if number < 0:
        raise ValueError
    return number


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise TypeError


_FLAGS: Final = {"true": True, "1": True, "false": False, "0": False}


def _as_flag(value: object) -> bool:
    return _FLAGS[str(value).lower()]


_READERS: Final[Mapping[object, tuple[Callable[[object], object], str]]] = {
    HeaderNumber | None: (_as_number, "a number of 64 bits"),
    HeaderNatural | None: (_as_natural, f"a number from 0 to {_LARGEST}"),
    bool | None: (_as_flag, "true or false"),
}
"""The conversion of values by type, and the expected value for the error text."""
