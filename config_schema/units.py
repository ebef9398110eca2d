"""The values of a configuration that carry a unit or a notation of their own.

Every function takes the text of an element, returns a plain typed value, and raises `UnitError`
with a sentence that states the expected form. Units are not case-sensitive, a number may have a
fraction, and blanks around the text or before the unit are ignored.

Source: AMPS User Guide, Using Units in the Configuration. The points that it leaves open (the
meaning of a bare number, one-letter sizes, fractions) are settled in docs/compatibility.md.
"""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Literal

from config_schema.redaction import masked

INTERVAL_UNITS: Final[Mapping[str, int]] = {
    "ns": 1,
    "us": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60 * 1_000_000_000,
    "h": 3_600 * 1_000_000_000,
    "d": 86_400 * 1_000_000_000,
    "w": 604_800 * 1_000_000_000,
}
"""Nanoseconds in each unit of time."""

SIZE_UNITS: Final[Mapping[str, int]] = {
    "b": 1,
    "k": 1 << 10,
    "kb": 1 << 10,
    "m": 1 << 20,
    "mb": 1 << 20,
    "g": 1 << 30,
    "gb": 1 << 30,
    "t": 1 << 40,
    "tb": 1 << 40,
}
"""Bytes in each unit of size."""

DECIMAL_SIZE_UNITS: Final[Mapping[str, int]] = {
    **SIZE_UNITS,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
}
"""The same where one letter stands for a power of ten."""

COUNT_UNITS: Final[Mapping[str, int]] = {"": 1, "k": 1_000, "m": 1_000_000}
"""The factors of the exponents of a plain number."""

BOOLEANS: Final[Mapping[str, bool]] = {
    "true": True,
    "enabled": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "disabled": False,
    "no": False,
    "off": False,
    "0": False,
}

MAX_INT64: Final = 2**63 - 1
"""No value of a configuration is above this: every one of them fits a signed 64-bit integer."""

_QUANTITY: Final = re.compile(r"([0-9]{1,30}(?:\.[0-9]{1,30})?)\s*([a-z]*)", re.ASCII)
_HOST_NAME: Final = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?\.?", re.ASCII | re.IGNORECASE)
_DOTTED_NUMBERS: Final = re.compile(r"[0-9.]+", re.ASCII)
_EXTERNAL: Final = re.compile(
    r"(?:(?P<scheme>https?)://)?"
    r"(?P<where>(?:[a-z0-9_.-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?(?:/[a-z0-9_.~%/-]*)?)",
    re.ASCII | re.IGNORECASE,
)
_MAX_EXTERNAL_LENGTH: Final = 255
_HIGHEST_PORT: Final = 65_535
_HIGHEST_MASK: Final = 0o7777

IpFamily = Literal["any", "ipv4", "ipv6"]


class UnitError(ValueError):
    """A value that cannot be read; its text is a sentence for the author of the configuration."""


@dataclass(frozen=True, slots=True)
class SocketAddress:
    """An address to listen on or to connect to.

    Attributes:
        host: a name or a numeric address without brackets; None listens on every address.
        port: 0 to 65535; 0 lets the system choose.
        family: the version of IP that the notation implies; "any" if it implies none.
    """

    host: str | None
    port: int
    family: IpFamily


def parse_interval(text: str, bare: str = "s") -> int:
    """Read an interval such as `10s`, `500ms` or `1.5h`.

    Args:
        text: the text of the element.
        bare: the unit of a number without one, a key of INTERVAL_UNITS.

    Returns:
        Nanoseconds.

    Raises:
        UnitError: not a number with one of the units, or beyond 292 years.
    """
    return _quantity(
        text,
        INTERVAL_UNITS,
        bare,
        "an interval",
        "expected a number and a unit such as 10s, 500ms or 1h",
    )


def parse_size(text: str) -> int:
    """Read a size such as `10MB`, `2G` or `4096`, where a kilobyte has 1024 bytes; return bytes.

    Raises:
        UnitError: not a number with one of the units, or above 2**63-1 bytes.
    """
    return _quantity(
        text, SIZE_UNITS, "b", "a size", "expected a number and a unit such as 64KB, 10MB or 2GB"
    )


def parse_rotation_threshold(text: str) -> int:
    """Read the size of a log file, where one letter is decimal: `50k` is 50,000, `50KB` 51,200.

    Source: AMPS User Guide, Log File Rotation.

    Returns:
        Bytes.

    Raises:
        UnitError: not a number with one of the units, or above 2**63-1 bytes.
    """
    return _quantity(
        text, DECIMAL_SIZE_UNITS, "b", "a size", "expected a number and a unit such as 50k or 2G"
    )


def parse_count(text: str) -> int:
    """Read a whole number that may use an exponent: `5000`, `10k` (10,000), `2M` (2,000,000).

    Returns:
        The number, 0 or more.

    Raises:
        UnitError: not such a number, or not a whole one.
    """
    return _quantity(
        text, COUNT_UNITS, "", "a count", "expected a whole number such as 5000, 10k or 2M"
    )


def parse_bool(text: str) -> bool:
    """Read a boolean: `true`, `enabled`, `false`, `disabled` and their synonyms.

    Raises:
        UnitError: another word.
    """
    value = BOOLEANS.get(text.strip().lower())
    if value is None:
        raise UnitError(
            f"{quoted(text)} is not a switch: expected true or false, enabled or disabled"
        )
    return value


def parse_octal_mask(text: str) -> int:
    """Read the permissions of a file in octal: `0640` or `640`.

    Returns:
        The permission bits, as os.chmod takes them.

    Raises:
        UnitError: not an octal number, or above 07777.
    """
    digits = text.strip()
    if not re.fullmatch("[0-7]{1,6}", digits) or int(digits, 8) > _HIGHEST_MASK:
        raise UnitError(
            f"{quoted(text)} is not a file mask: expected permissions in octal such as 0640"
        )
    return int(digits, 8)


def parse_inet_address(text: str) -> SocketAddress:
    """Read an address: `9007`, `host:9007`, `0.0.0.0:9007` (IPv4 only), `[::]:9007` (IPv6 only).

    Source: AMPS User Guide, Configuring Transports (InetAddr) and Using IPv6 For Connections.

    Raises:
        UnitError: no such address, with the reason.
    """
    address = text.strip()
    host, separator, port = address.rpartition(":")
    if not separator:
        return SocketAddress(None, _port(port, text), "any")
    if host.startswith("[") and host.endswith("]"):
        return SocketAddress(_ipv6(host[1:-1], text), _port(port, text), "ipv6")
    if ":" in host:
        raise UnitError(
            f"{quoted(text)} is not an address: "
            "write an IPv6 address in brackets, such as [::1]:9007"
        )
    if _DOTTED_NUMBERS.fullmatch(host):
        return SocketAddress(_ipv4(host, text), _port(port, text), "ipv4")
    if not _HOST_NAME.fullmatch(host):
        raise UnitError(
            f"{quoted(text)} is not an address: expected a port such as 9007, or host:port"
        )
    return SocketAddress(host, _port(port, text), "any")


def parse_external_address(text: str) -> tuple[str, str]:
    """Read the external address of a service behind a proxy: `proxy:8185`, `https://proxy.net/one`.

    Source: AMPS User Guide, Configuring Monitoring (ExternalInetAddr).

    Returns:
        The scheme, in lower case, empty if it is left out; and the rest.

    Raises:
        UnitError: no such address.
    """
    match = _EXTERNAL.fullmatch(text.strip())
    if match is None or len(text) > _MAX_EXTERNAL_LENGTH:
        raise UnitError(f"{quoted(text)} is not an address: expected host:port, or a URL")
    return (match["scheme"] or "").lower(), match["where"]


def quoted(text: str) -> str:
    """Format a configured value for a sentence: one line, shortened, in quotes, no secrets."""
    line = " ".join(masked(text).split())
    shown = "".join(character if character.isprintable() else "?" for character in line)
    return f"'{shown}'" if len(shown) <= 60 else f"'{shown[:57]}...'"


def _quantity(text: str, units: Mapping[str, int], bare: str, kind: str, expected: str) -> int:
    match = _QUANTITY.fullmatch(text.strip().lower())
    factor = units.get(match[2] or bare) if match else None
    if match is None or factor is None:
        raise UnitError(f"{quoted(text)} is not {kind}: {expected}")
    exact = Decimal(match[1]) * factor
    value = int(exact)
    if value > MAX_INT64:
        raise UnitError(f"{quoted(text)} is too large to be {kind}")
    if value == 0 and exact:
        raise UnitError(f"{quoted(text)} is too small to be {kind}")
    if value != exact and factor == 1:
        raise UnitError(f"{quoted(text)} is not {kind}: there is no fraction of the smallest unit")
    return value


def _port(digits: str, text: str) -> int:
    if not re.fullmatch("[0-9]{1,5}", digits) or int(digits) > _HIGHEST_PORT:
        raise UnitError(
            f"{quoted(text)} is not an address: "
            f"expected a port from 0 to {_HIGHEST_PORT} such as 9007, or host:port"
        )
    return int(digits)


def _ipv4(host: str, text: str) -> str:
    try:
        return str(ipaddress.IPv4Address(host))
    except ValueError:
        raise UnitError(
            f"{quoted(text)} is not an address: {quoted(host)} is not an IPv4 address"
        ) from None


def _ipv6(host: str, text: str) -> str:
    try:
        return str(ipaddress.IPv6Address(host))
    except ValueError:
        raise UnitError(
            f"{quoted(text)} is not an address: {quoted(host)} is not an IPv6 address"
        ) from None
