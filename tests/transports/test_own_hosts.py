"""Which pages belong to this host, where no credentials are checked."""

from __future__ import annotations

import platform

import pytest

from server.transports.own_hosts import OwnHosts, own_names

HOSTS = OwnHosts(["plant", "console.example"])

PAGES = [
    ("http://localhost:3000", "plant:9008", True),
    ("http://app.localhost", "plant:9008", True),
    ("http://127.0.0.2", "10.0.0.7:9008", True),
    ("http://10.0.0.7:8085", "10.0.0.7:9008", True),
    ("http://10.0.0.8:8085", "10.0.0.7:9008", False),
    ("https://Plant", "10.0.0.7:9008", True),
    ("https://console.example", "127.0.0.1:9008", True),
    ("http://evil.example:8085", "plant:9008", False),
    ("http://evil.example:9008", "evil.example:9008", False),  # which was made to resolve to us
    ("http://plant.evil.example", "plant.evil.example", False),
    ("http://localhost@evil.example", "localhost", False),
    ("chrome-extension://localhost", "localhost", False),
    ("null", "localhost", False),
    ("", "", False),
    ("http://", "", False),
    ("http://[", "[", False),
]


@pytest.mark.parametrize(("origin", "authority", "expected"), PAGES)
def test_pages_of_this_host(origin: str, authority: str, expected: bool) -> None:
    assert HOSTS.has_page(origin, authority) is expected


def test_the_name_of_this_machine_is_its_own() -> None:
    assert OwnHosts(own_names(None)).has_host(f"{platform.node()}:8085")
