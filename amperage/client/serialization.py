"""Encoders of published values, and decoders of received bodies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias, get_origin

import msgspec

from amperage.client.errors import EncodeError

Encode: TypeAlias = Callable[[Any], bytes | str]
"""Encodes a value as a message's body."""

Decode: TypeAlias = Callable[[bytes], Any]
"""Decodes a message's body."""

Encoder: TypeAlias = Literal["json"] | Encode
"""An encoder argument: "json", or a function."""

Decoder: TypeAlias = Literal["json"] | type[Any] | Decode
"""A decoder argument: "json", a type for JSON bodies, or a function."""

JSON: Final = "json"
_NAMED: Final = 'expected "json"'


def encode_function(encoder: Encoder | None) -> Encode | None:
    """Return the function of an encoder argument.

    Raises:
        TypeError: the argument is not an encoder.
        ValueError: it is an unknown name.
    """
    if encoder is None:
        return None
    if isinstance(encoder, str):
        _check_name("encoder", encoder)
        return msgspec.json.encode
    if not callable(encoder) or isinstance(encoder, type):
        raise TypeError(f"encoder: {_NAMED} or a function, not {encoder!r}")
    return encoder


def decode_function(decoder: Decoder | None) -> Decode | None:
    """Return the function of a decoder argument.

    A type means JSON bodies, validated as that type: a `msgspec.Struct`, a dataclass, a TypedDict,
    or any other type that msgspec supports. `bytes` and `str` mean the body itself.

    Raises:
        TypeError: the argument is not a decoder, or is a type that msgspec does not support.
        ValueError: it is an unknown name.
    """
    if decoder is None or decoder is bytes:
        return None
    if decoder is str:
        return bytes.decode
    if isinstance(decoder, str):
        _check_name("decoder", decoder)
        return msgspec.json.decode
    if isinstance(decoder, type) or get_origin(decoder) is not None:
        return msgspec.json.Decoder(decoder).decode
    if not callable(decoder):
        raise TypeError(f"decoder: {_NAMED}, a type or a function, not {decoder!r}")
    return decoder


def encoded_value(topic: str, value: Any, encode: Encode) -> bytes | str:
    """Encode a value for publishing.

    Raises:
        EncodeError: the encoder failed.
    """
    try:
        return encode(value)
    except Exception as error:
        kind = type(value).__name__
        raise EncodeError(f"topic {topic}: the {kind} cannot be encoded: {error}") from error


def _check_name(argument: str, name: str) -> None:
    if name != JSON:
        raise ValueError(f"{argument}: {_NAMED}, not {name!r}")
