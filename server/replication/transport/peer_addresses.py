"""Compares the address of a connection with the addresses of a Destination.

Source: AMPS User Guide, Destination Server Failover: a connection of one of the servers on the list
is used.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from config_schema.spec import DestinationSpec

_RESOLVE_TIMEOUT_S: Final = 3.0

IpAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
HostAddresses: TypeAlias = dict[str, frozenset[IpAddress]]
"""The addresses of hosts, by their names."""


def hosts_of(destination: DestinationSpec) -> frozenset[str]:
    """Return the hosts of the addresses of a Destination."""
    return frozenset(
        address.host or "localhost"
        for transport in destination.transports
        for address in transport.addresses
    )


async def resolve(hosts: Iterable[str]) -> HostAddresses:
    """Return the addresses of hosts; none for one that cannot be resolved in time."""
    return {host: await _resolve(host) for host in hosts}


async def _resolve(host: str) -> frozenset[IpAddress]:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_RESOLVE_TIMEOUT_S):
            infos = await loop.getaddrinfo(host, None)
    except (OSError, UnicodeError, TimeoutError):
        return frozenset()
    return frozenset(_without_zone(str(info[4][0])) for info in infos)


def comes_from(peer: str, hosts: Iterable[str], addresses: HostAddresses) -> bool:
    """Return whether a connection is from one of the hosts.

    All loopback addresses are the same host.

    Args:
        peer: the IP address of its peer.
        hosts: the names of the hosts.
        addresses: the addresses of the hosts.
    """
    peer_address = _without_zone(peer)
    known_addresses = frozenset[IpAddress]().union(*(addresses.get(host, ()) for host in hosts))
    return peer_address in known_addresses or (
        peer_address.is_loopback and any(address.is_loopback for address in known_addresses)
    )


def _without_zone(text: str) -> IpAddress:
    """Return an IP address without its zone; the IPv4 address of an IPv4-mapped one."""
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return address if mapped is None else mapped
