"""Where other instances have their admin interface, as they say and as they are reached.

An instance that listens on every address of its machine cannot tell by which of them others reach
it, but whoever has a link with it does: it has come from somewhere, or was reached somewhere.

Source: AMPS User Guide, Configuring Monitoring: ExternalInetAddr; AMPS Monitoring Guide,
replication: destination_admin_addr.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, NamedTuple

from config_schema.units import UnitError, parse_external_address

if TYPE_CHECKING:
    from config_schema.together import InstanceDescription

_HIGHEST_PORT: Final = 65_535


class AdminInterface(NamedTuple):
    """Where an admin interface is; nowhere, as far as is known, with an empty address.

    Attributes:
        address: host and port, or what stands for it behind a proxy; never a scheme.
        scheme: https, or http; empty without an address.
    """

    address: str = ""
    scheme: str = ""


NOWHERE: Final = AdminInterface()


def admin_interface(address: str, *, is_secure: bool) -> AdminInterface:
    """What an instance says of where its admin interface is, if that can be an address.

    Args:
        address: what it says; the other end may say anything.
        is_secure: whether it is reached over TLS.
    """
    try:
        _, where = parse_external_address(address)
    except UnitError:
        return NOWHERE
    return AdminInterface(where, "https" if is_secure else "http")


def said(description: InstanceDescription) -> AdminInterface:
    """Where an instance says that its admin interface is, if it says all of it."""
    admin = description.admin
    if admin is None or not 0 < admin.port <= _HIGHEST_PORT:
        return NOWHERE
    if admin.external:
        return admin_interface(admin.external, is_secure=admin.is_secure)
    if admin.host is None or _is_any(admin.host) or _is_local(admin.host):
        return NOWHERE
    return admin_interface(_joined(admin.host, admin.port), is_secure=admin.is_secure)


def seen(description: InstanceDescription, host: str) -> AdminInterface:
    """The same for an instance that there is a link with.

    Args:
        description: what it says of itself.
        host: where it has been reached, or has come from.
    """
    told, admin = said(description), description.admin
    if told.address or admin is None or admin.external or not 0 < admin.port <= _HIGHEST_PORT:
        return told
    if admin.host is not None and _is_local(admin.host) and not _is_local(host):
        return NOWHERE  # whoever is there may look at it, and nobody else
    if admin.host is not None and not _is_any(admin.host) and not _is_local(admin.host):
        return NOWHERE  # what it says is no address
    return admin_interface(_joined(host, admin.port), is_secure=admin.is_secure)


def best(found: Iterable[AdminInterface]) -> AdminInterface:
    """The one of several that most can use: not that of whoever is on the same machine."""
    other = NOWHERE
    for one in found:
        if one.address and not _is_local(host_of(one.address)):
            return one
        other = other if other.address else one
    return other


def host_of(address: str) -> str:
    """The host of an address as connections have it, with its port."""
    return address.rpartition(":")[0].strip("[]")


def _joined(host: str, port: int) -> str:
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
