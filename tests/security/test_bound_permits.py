"""Filters of permissions ask who the permission is for, and not who has published a message."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from server.expressions import BUILTINS, ContextKind, parse
from server.security.bound_identity import PermitBinder
from server.security.permissions import UNLIMITED, Permit


@dataclass
class Somebody:
    number: int = 1
    client_hash: int = 7
    message_type: str = "json"
    user: str = "ann"
    client_name: str = "desk"
    client_version: str = "5.3"
    connection_name: str = "c-1"
    address: str = "10.0.0.1:40000"


def permit(text: str) -> Permit:
    return Permit(True, filter=parse(text, ContextKind.FILTER, BUILTINS), filter_text=text)


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("/owner = USER()", "/owner = 'ann'"),
        ("/a = 1 AND NOT /b IN (CLIENT_NAME(), 'x')", "/a = 1 AND /b NOT IN ('desk', 'x')"),
        ("LENGTH(CLIENT_VERSION()) = 3", "LENGTH('5.3') = 3"),
        ("CONNECTION_NAME() = /c OR REMOTE_ADDRESS() = /d", "'c-1' = /c OR '10.0.0.1:40000' = /d"),
        ("/topic = TOPIC_NAME() AND /x = CORRELATION_ID()", None),
        ("/user = 'USER()'", None),
    ],
)
def test_functions_of_the_client_are_those_of_who_has_the_permit(
    text: str, bound: str | None
) -> None:
    given = permit(text)
    found = PermitBinder(Somebody()).bind(given)
    if bound is None:
        assert found is given
    else:
        assert found.filter == parse(bound, ContextKind.FILTER, BUILTINS)
        assert parse(found.filter_text, ContextKind.FILTER, BUILTINS) == found.filter


def test_who_has_no_name_has_none() -> None:
    """NULL, which equals nothing."""
    found = PermitBinder(Somebody(user="")).bind(permit("/owner = USER()"))
    assert found.filter_text == "/owner = NULL"


@pytest.mark.parametrize("name", ["user", "client_name", "client_version"])
def test_a_permit_is_bound_once_for_whoever_it_is(name: str) -> None:
    """Who it is may change until the logon."""
    somebody = Somebody(user="")
    permits, given = PermitBinder(somebody), permit(f"/owner = {name.upper()}()")
    assert permits.bind(UNLIMITED) is UNLIMITED
    assert permits.bind(given) is permits.bind(given)
    setattr(somebody, name, "bob")
    assert permits.bind(given).filter_text == "/owner = 'bob'"
