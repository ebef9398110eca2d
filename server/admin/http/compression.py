"""gzip compression of bodies, for clients that accept it.

Source: RFC 9110, Accept-Encoding.
"""

from __future__ import annotations

from typing import Final

from server.admin.http.messages import HttpDocument, HttpRequest

MIN_COMPRESSED_BODY_SIZE: Final = 1_024
"""Bytes from which on a body is compressed."""


def encode_body(request: HttpRequest, document: HttpDocument) -> tuple[bytes, str]:
    """Return the bytes to send for a document, and their encoding; empty for none."""
    if len(document.content) < MIN_COMPRESSED_BODY_SIZE or not accepts_gzip(
        request.headers.get("accept-encoding", "")
    ):
        return document.content, ""
    return document.compressed, "gzip"


def accepts_gzip(accepted: str) -> bool:
    """Return whether an Accept-Encoding header allows gzip: by its own entry, else that of `*`."""
    weights: dict[str, float] = {}
    for item in accepted.split(","):
        name, _, parameters = item.partition(";")
        weights[name.strip().lower()] = _weight(parameters)
    weight = weights.get("gzip", weights.get("x-gzip", weights.get("*", 0.0)))
    return weight > 0


def _weight(parameters: str) -> float:
    name, _, value = parameters.strip().partition("=")
    if name.strip().lower() != "q":
        return 1.0
    try:
        return float(value)
    except ValueError:
        return 0.0
