"""The user that a certificate names, its expiry, and its hash for channel bindings.

Source: RFC 5280. AMPS verifies certificates, and takes no name from them: the choice of the name is
Amperage's own.
"""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final, TypeAlias, cast

PeerCertificate: TypeAlias = Mapping[str, object]
"""A certificate as `ssl.SSLObject.getpeercert` returns it; empty if it is not verified."""

_Names: TypeAlias = Iterable[tuple[str, str]]

_ALTERNATIVES: Final = ("email", "DNS", "URI")
"""The kinds of alternative names that may identify a user, the most familiar ones first."""

_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_END: Final = "-----END CERTIFICATE-----"

_RSA: Final = bytes.fromhex("2a864886f70d0101")  # 1.2.840.113549.1.1
_ECDSA: Final = bytes.fromhex("2a8648ce3d04")  # 1.2.840.10045.4
_HASHES: Final = {
    _RSA + b"\x04": "sha256",  # with MD5, which the standard replaces
    _RSA + b"\x05": "sha256",  # with SHA-1, likewise
    _RSA + b"\x0b": "sha256",
    _RSA + b"\x0c": "sha384",
    _RSA + b"\x0d": "sha512",
    _ECDSA + b"\x01": "sha256",  # with SHA-1, likewise
    _ECDSA + b"\x03\x02": "sha256",
    _ECDSA + b"\x03\x03": "sha384",
    _ECDSA + b"\x03\x04": "sha512",
}
"""The hash of a channel binding, by the object identifier of the signature algorithm."""

_SEQUENCE: Final = 0x30
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18
_MANY_OCTETS: Final = 0x80  # from here on, the first octet counts the length octets that follow


def user_of(certificate: PeerCertificate) -> str:
    """Return the user that a client's certificate names.

    Returns:
        The common name, or else an alternative name; empty without one, or if it is not printable.
    """
    subject = cast("Iterable[_Names]", certificate.get("subject", ()))
    alternatives = list(cast("_Names", certificate.get("subjectAltName", ())))
    names = [value for part in subject for kind, value in part if kind == "commonName"]
    for kind_wanted in _ALTERNATIVES:
        names += [value for kind, value in alternatives if kind == kind_wanted]
    name = next(iter(names), "")
    return name if name.isprintable() else ""


def ends_of(text: str) -> list[datetime]:
    """Return the expiry times of the certificates of a PEM file, in their order.

    Certificates that cannot be parsed are left out.
    """
    end_dates = []
    for block in text.split(_END)[:-1]:
        begin = block.find(_BEGIN)
        if begin < 0:
            continue
        try:
            end_dates.append(_end_of(ssl.PEM_cert_to_DER_cert(block[begin:] + _END)))
        except (ValueError, IndexError):  # malformed or truncated
            continue
    return end_dates


def channel_binding_of(text: str) -> bytes:
    """Return the channel binding tls-server-end-point of the first certificate of a PEM file.

    Returns:
        The hash of the certificate; empty if its signature algorithm has no hash of its own, such
        as Ed25519, or states it in parameters, such as RSASSA-PSS. The standard defines no binding
        for the former, and clients disagree about the latter.

    Source: RFC 5929, 4.1.
    """
    block, end, _ = text.partition(_END)
    try:
        der = ssl.PEM_cert_to_DER_cert(block[block.index(_BEGIN) :] + end)
        _, certificate = _elements(der)[0]
        _, algorithm = _elements(certificate)[1]
        _, identifier = _elements(algorithm)[0]
    except (ValueError, IndexError):  # malformed or truncated
        return b""
    name = _HASHES.get(identifier)
    return hashlib.new(name, der).digest() if name else b""


def _end_of(der: bytes) -> datetime:
    """Return the expiry time of a certificate.

    Certificate: SEQUENCE of (to be signed: SEQUENCE of ([version], serial number, algorithm,
    issuer, validity: SEQUENCE of (from, until), ...), ...)

    Raises:
        ValueError: it is malformed.
        IndexError: it is truncated.
    """
    _, certificate = _elements(der)[0]
    _, signed = _elements(certificate)[0]
    validity = [content for tag, content in _elements(signed) if tag == _SEQUENCE][2]
    tag, until = _elements(validity)[1]
    form = {_UTC_TIME: "%y%m%d%H%M%SZ", _GENERALIZED_TIME: "%Y%m%d%H%M%SZ"}.get(tag, "")
    return datetime.strptime(until.decode("ascii"), form).replace(tzinfo=UTC)


def _elements(data: bytes) -> list[tuple[int, bytes]]:
    """Return the elements of a DER encoding: their tags and contents."""
    elements, offset = [], 0
    while offset < len(data):
        tag, length = data[offset], data[offset + 1]
        offset += 2
        if length >= _MANY_OCTETS:
            octets = length - _MANY_OCTETS
            length = int.from_bytes(data[offset : offset + octets], "big")
            offset += octets
        elements.append((tag, data[offset : offset + length]))
        offset += length
    return elements
