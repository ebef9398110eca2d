"""Encodes schemas and record batches as messages FlightData.

A FlightData has the metadata and the body of an IPC message of Arrow. It is encoded here, without
protobuf, so that the body is copied once.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

_HEADER_KEY: Final = b"\x12"  # field 2, data_header
_BODY_KEY: Final = b"\xc2\x3e"  # field 1000, data_body


def encode_schema(schema: pa.Schema) -> bytes:
    """Return the message that begins a stream of batches."""
    return _encode(pa.ipc.read_message(schema.serialize()))


def encode_batch(batch: pa.RecordBatch) -> bytes:
    """Return the message of a batch."""
    return _encode(pa.ipc.read_message(batch.serialize()))


def _encode(message: pa.Message) -> bytes:
    metadata, body = message.metadata, message.body
    parts = [_HEADER_KEY, _varint(metadata.size), metadata]
    if body is not None and body.size:
        parts += [_BODY_KEY, _varint(body.size), body]
    return b"".join(parts)


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
