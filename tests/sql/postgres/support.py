"""Messages of clients, built by code that shares nothing with the product."""

from __future__ import annotations

import struct


def message(code: str, *parts: bytes) -> bytes:
    content = b"".join(parts)
    return code.encode() + struct.pack("!i", len(content) + 4) + content


def initial(code: int, *parts: bytes) -> bytes:
    content = struct.pack("!i", code) + b"".join(parts)
    return struct.pack("!i", len(content) + 4) + content


def text(value: str) -> bytes:
    return value.encode() + b"\0"


def int16(*values: int) -> bytes:
    return struct.pack(f"!{len(values)}H", *values)


def int32(*values: int) -> bytes:
    return struct.pack(f"!{len(values)}i", *values)


def startup(version: int = 196608, **parameters: str) -> bytes:
    pairs = [text(name) + text(value) for name, value in parameters.items()]
    return initial(version, *pairs, b"\0")


SSL_REQUEST = initial(80877103)
GSSENC_REQUEST = initial(80877104)
CANCEL = initial(80877102, int32(4711), b"\xde\xad\xbe\xef")


def password(value: str) -> bytes:
    return message("p", text(value))


def query(statement: str) -> bytes:
    return message("Q", text(statement))


def parse(statement: str, name: str = "", types: tuple[int, ...] = ()) -> bytes:
    return message("P", text(name), text(statement), int16(len(types)), int32(*types))


def bind(
    *values: bytes | None,
    portal: str = "",
    statement: str = "",
    formats: tuple[int, ...] = (),
    results: tuple[int, ...] = (),
) -> bytes:
    encoded = b"".join(
        int32(-1) if value is None else int32(len(value)) + value for value in values
    )
    return message(
        "B",
        text(portal),
        text(statement),
        int16(len(formats), *formats),
        int16(len(values)),
        encoded,
        int16(len(results), *results),
    )


def describe(kind: str, name: str = "") -> bytes:
    return message("D", kind.encode(), text(name))


def close(kind: str, name: str = "") -> bytes:
    return message("C", kind.encode(), text(name))


def execute(portal: str = "", limit: int = 0) -> bytes:
    return message("E", text(portal), int32(limit))


SYNC = message("S")
FLUSH = message("H")
TERMINATE = message("X")


def split(data: bytes) -> list[tuple[str, bytes]]:
    """The messages of a server: type and content."""
    found = []
    while data:
        (length,) = struct.unpack_from("!i", data, 1)
        found.append((chr(data[0]), data[5 : 1 + length]))
        assert len(data) > length
        data = data[1 + length :]
    return found


def kinds(data: bytes) -> str:
    """The types of the messages of a server."""
    return "".join(kind for kind, _ in split(data))


def error_fields(data: bytes) -> dict[str, str]:
    """The fields of the first ErrorResponse or NoticeResponse."""
    content = next(content for kind, content in split(data) if kind in "EN")
    assert content.endswith(b"\0\0")
    return {part[:1].decode(): part[1:].decode() for part in content[:-2].split(b"\0")}
