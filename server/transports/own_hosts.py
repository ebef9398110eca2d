"""The names by which browsers reach this host, and the web pages that belong to it.

A name that another party owns may be made to resolve to this host (DNS rebinding); for a browser,
a page of that name is then on one site with this instance. So a name counts as the host's own only
if it is known locally, without a DNS query: from the host name, /etc/hosts, the search domains of
/etc/resolv.conf, and the configuration.

Source: Fetch Standard, Origin; RFC 6761, localhost.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from config_schema.units import parse_external_address

if TYPE_CHECKING:
    from config_schema.spec import AdminSpec

_HOSTS: Final = Path("/etc/hosts")
_RESOLVER: Final = Path("/etc/resolv.conf")


class OwnHosts:
    """The host names that are this instance's own.

    Args:
        names: names besides addresses and localhost.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = {name.lower().rstrip(".") for name in names if name}

    def has_host(self, authority: str) -> bool:
        """Return whether `host` or `host:port` is an address, localhost or one of the names."""
        host = _host_of(authority)
        return host in self._names or _is_loopback(host) or _is_address(host)

    def has_page(self, origin: str, authority: str) -> bool:
        """Return whether a page belongs to this host, on any port.

        Args:
            origin: the Origin header of a request.
            authority: its Host header.
        """
        scheme, _, page = origin.partition("://")
        if scheme not in ("http", "https"):
            return False
        host = _host_of(page)
        if host in self._names or _is_loopback(host):
            return True
        return bool(host) and host == _host_of(authority) and self.has_host(authority)


def own_names(admin: AdminSpec | None) -> list[str]:
    """Return the names of this host and of its admin interface."""
    node = platform.node()
    names = [node]
    for line in _lines(_HOSTS):
        aliases = line.split()[1:]
        if node in aliases:
            names += aliases
    for line in _lines(_RESOLVER):
        fields = line.split()
        if fields[:1] in (["search"], ["domain"]):
            names += [f"{node}.{domain}" for domain in fields[1:]]
    if admin is not None:
        if admin.inet_addr is not None and admin.inet_addr.host is not None:
            names.append(admin.inet_addr.host)
        if admin.external_inet_addr is not None:
            _, authority = parse_external_address(admin.external_inet_addr)
            names.append(_host_of(authority))
    return names


def _host_of(authority: str) -> str:
    """Return the host of `host:port`, in lower case; empty if that cannot be read."""
    try:
        return (urlsplit(f"//{authority}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _lines(path: Path) -> list[str]:
    """Return the lines of a file without comments; none if it cannot be read."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return []
    return [line.partition("#")[0] for line in text.splitlines()]
