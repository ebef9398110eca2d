"""Whom a certificate names, and how long it is good.

Source: RFC 5280. AMPS verifies certificates, and takes no name from them: which name that is here
is ours.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final, TypeAlias, cast

Decoded: TypeAlias = Mapping[str, object]
"""A certificate as `ssl.SSLObject.getpeercert` gives it; without entries if it is not verified."""

_Names: TypeAlias = Iterable[tuple[str, str]]

_ALTERNATIVES: Final = ("email", "DNS", "URI")
"""The kinds of alternative names that may stand for a user, the ones that people know first."""

_END: Final = "-----END CERTIFICATE-----"

_SEQUENCE: Final = 0x30
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18
_MANY_OCTETS: Final = 0x80  # from here on, the first octet of a length counts those that follow


def user_of(certificate: Decoded) -> str:
    """Whom the certificate of a client names: the common name, or else an alternative one.

    Returns:
        The name; empty if there is none, or none that can be a user's.
    """
    subject = cast("Iterable[_Names]", certificate.get("subject", ()))
    alternatives = list(cast("_Names", certificate.get("subjectAltName", ())))
    names = [value for part in subject for kind, value in part if kind == "commonName"]
    for wanted in _ALTERNATIVES:
        names += [value for kind, value in alternatives if kind == wanted]
    name = next(iter(names), "")
    return name if name.isprintable() else ""


def ends_of(text: str) -> list[datetime]:
    """Until when the certificates of a PEM file are good, in their order.

    Those that cannot be read are left out.
    """
    found = []
    for piece in text.split(_END)[:-1]:
        begin = piece.find("-----BEGIN CERTIFICATE-----")
        if begin < 0:
            continue
        try:
            found.append(_end_of(ssl.PEM_cert_to_DER_cert(piece[begin:] + _END)))
        except (ValueError, IndexError):  # it is none, or cut off
            continue
    return found


def _end_of(der: bytes) -> datetime:
    """Until when a certificate is good.

    Certificate: SEQUENCE of (to be signed: SEQUENCE of ([version], serial number, algorithm,
    issuer, validity: SEQUENCE of (from, until), ...), ...)

    Raises:
        ValueError: it is none.
        IndexError: it is cut off.
    """
    _, certificate = _elements(der)[0]
    _, signed = _elements(certificate)[0]
    validity = [content for tag, content in _elements(signed) if tag == _SEQUENCE][2]
    tag, until = _elements(validity)[1]
    form = {_UTC_TIME: "%y%m%d%H%M%SZ", _GENERALIZED_TIME: "%Y%m%d%H%M%SZ"}.get(tag, "")
    return datetime.strptime(until.decode("ascii"), form).replace(tzinfo=UTC)


def _elements(data: bytes) -> list[tuple[int, bytes]]:
    """The elements of a DER encoding: their tags and contents."""
    found, at = [], 0
    while at < len(data):
        tag, length = data[at], data[at + 1]
        at += 2
        if length >= _MANY_OCTETS:
            octets = length - _MANY_OCTETS
            length = int.from_bytes(data[at : at + octets], "big")
            at += octets
        found.append((tag, data[at : at + length]))
        at += length
    return found
