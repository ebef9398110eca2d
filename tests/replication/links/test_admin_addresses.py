"""Where an instance has its admin interface, as it says, and as others see it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from config_schema.topology.description import AdminAddress
from server.replication.links.admin_addresses import (
    NO_ADMIN_LOCATION,
    AdminLocation,
    best_admin_location,
    host_of,
    peer_admin_location,
    reported_admin_location,
)
from tests.replication.links.support import Network, destination

ANYWHERE = AdminAddress(None, 8085, is_secure=False)
CASES = {
    # what is told, where the other end is: what it says itself, what is seen
    "everywhere": (ANYWHERE, "10.0.0.7", "", "10.0.0.7:8085"),
    "everywhere, by name": (ANYWHERE, "amps-two", "", "amps-two:8085"),
    "IPv6": (ANYWHERE, "fe80::1", "", "[fe80::1]:8085"),
    "every IPv4 address": (replace(ANYWHERE, host="0.0.0.0"), "10.0.0.7", "", "10.0.0.7:8085"),
    "one address": (replace(ANYWHERE, host="10.1.1.1"), "10.0.0.7", "10.1.1.1:8085", None),
    "one name": (replace(ANYWHERE, host="admin.net"), "10.0.0.7", "admin.net:8085", None),
    "its own machine": (replace(ANYWHERE, host="localhost"), "10.0.0.7", "", ""),
    "this machine": (replace(ANYWHERE, host="127.0.0.1"), "127.0.0.1", "", "127.0.0.1:8085"),
    "external": (replace(ANYWHERE, external="proxy:81/two"), "10.0.0.7", "proxy:81/two", None),
    "nowhere": (None, "10.0.0.7", "", ""),
    "markup": (replace(ANYWHERE, external="<img src=x>"), "10.0.0.7", "", ""),
    "a script": (replace(ANYWHERE, external="javascript:alert(1)"), "10.0.0.7", "", ""),
    "huge": (replace(ANYWHERE, external="x" * 100_000), "10.0.0.7", "", ""),
    "a host that is none": (replace(ANYWHERE, host='"><b>'), "10.0.0.7", "", None),
    "a port that is none": (replace(ANYWHERE, port=70_000), "10.0.0.7", "", ""),
}


@pytest.mark.parametrize(("admin", "host", "own", "there"), CASES.values(), ids=CASES)
def test_where_the_admin_interface_is(
    admin: AdminAddress | None, host: str, own: str, there: str | None
) -> None:
    a = Network().instance("A", destination("B"))
    description = replace(a.description, admin=admin)
    assert reported_admin_location(description).address == own
    assert peer_admin_location(description, host).address == (own if there is None else there)


def test_its_scheme_is_told() -> None:
    a = Network().instance("A", destination("B"))
    secure = replace(a.description, admin=replace(ANYWHERE, is_secure=True))
    assert peer_admin_location(secure, "two") == AdminLocation("two:8085", "https")
    assert peer_admin_location(replace(secure, admin=ANYWHERE), "two") == AdminLocation(
        "two:8085", "http"
    )


@pytest.mark.parametrize(
    ("address", "host"),
    [("10.0.0.7:9004", "10.0.0.7"), ("[fe80::1]:9004", "fe80::1"), ("local socket", "")],
)
def test_the_host_of_an_address(address: str, host: str) -> None:
    assert host_of(address) == host


def test_of_several_the_one_is_shown_that_most_can_use() -> None:
    near, far = AdminLocation("127.0.0.1:1", "http"), AdminLocation("10.0.0.7:1", "http")
    assert (
        best_admin_location([NO_ADMIN_LOCATION, near, far])
        == best_admin_location([far, near])
        == far
    )
    assert best_admin_location([NO_ADMIN_LOCATION, near]) == near
    assert best_admin_location([]) == NO_ADMIN_LOCATION
