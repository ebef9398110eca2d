"""Addresses of the admin interfaces of other instances, as reported and as reached.

An instance that listens on every address of its machine does not know by which of them others reach
it. A peer that has a link with it knows the address of the connection.

Source: AMPS User Guide, Configuring Monitoring: ExternalInetAddr; AMPS Monitoring Guide,
replication: destination_admin_addr.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, NamedTuple

from config_schema.units import UnitError, parse_external_address

if TYPE_CHECKING:
    from config_schema.topology import InstanceDescription

_MAX_PORT: Final = 65_535


class AdminLocation(NamedTuple):
    """The location of an admin interface; the address is empty if unknown.

    Attributes:
        address: host and port, or the equivalent behind a proxy; never a scheme.
        scheme: https, or http; empty without an address.
    """

    address: str = ""
    scheme: str = ""


NO_ADMIN_LOCATION: Final = AdminLocation()


def parse_admin_location(address: str, *, is_secure: bool) -> AdminLocation:
    """Return the admin interface that an instance reports, if the address is valid.

    Args:
        address: the address; the peer may send anything.
        is_secure: whether it is reached over TLS.
    """
    try:
        _, location = parse_external_address(address)
    except UnitError:
        return NO_ADMIN_LOCATION
    return AdminLocation(location, "https" if is_secure else "http")


def reported_admin_location(description: InstanceDescription) -> AdminLocation:
    """Return the admin interface that an instance reports, if the report is complete."""
    admin = description.admin
    if admin is None or not 0 < admin.port <= _MAX_PORT:
        return NO_ADMIN_LOCATION
    if admin.external:
        return parse_admin_location(admin.external, is_secure=admin.is_secure)
    if admin.host is None or _is_any(admin.host) or _is_local(admin.host):
        return NO_ADMIN_LOCATION
    return parse_admin_location(_format_address(admin.host, admin.port), is_secure=admin.is_secure)


def peer_admin_location(description: InstanceDescription, host: str) -> AdminLocation:
    """Return the admin interface of an instance with which this instance has a link.

    Args:
        description: the description that it has sent.
        host: the host where it has been reached, or from which it has connected.
    """
    reported, admin = reported_admin_location(description), description.admin
    if reported.address or admin is None or admin.external or not 0 < admin.port <= _MAX_PORT:
        return reported
    if admin.host is not None and _is_local(admin.host) and not _is_local(host):
        return NO_ADMIN_LOCATION  # reachable only from its own machine
    if admin.host is not None and not _is_any(admin.host) and not _is_local(admin.host):
        return NO_ADMIN_LOCATION  # the reported address is invalid
    return parse_admin_location(_format_address(host, admin.port), is_secure=admin.is_secure)


def best_admin_location(locations: Iterable[AdminLocation]) -> AdminLocation:
    """Return the most widely reachable of several interfaces: not a loopback one if possible."""
    other = NO_ADMIN_LOCATION
    for location in locations:
        if location.address and not _is_local(host_of(location.address)):
            return location
        other = other if other.address else location
    return other


def host_of(address: str) -> str:
    """Return the host of an address that includes the port, as connections have it."""
    return address.rpartition(":")[0].strip("[]")


def _format_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_any(host: str) -> bool:
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


def _is_local(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
