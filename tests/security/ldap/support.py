"""What tests of LDAP have in common: people, a server that asks a directory, and logons."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support.directory import ACCOUNT, ACCOUNT_PASSWORD, BASE, person
from tests.support.server import RunningServer, running_server

PEOPLE: Final = (
    person(f"uid=ann,{BASE}", "ann-s3cret", "ann")
    + person(f"uid=bob,{BASE}", "bob-s3cret", "bob")
    + person(f"cn=Odd\\, (One) \\2A,{BASE}", "odd-s3cret", "odd,*(uid=ann)\\")
    + person(f"uid=cyd,{BASE}", "YBs3cret", "cyd")
    + person(f"cn=twin one,{BASE}", "ann-s3cret", "twin")
    + person(f"cn=twin two,{BASE}", "ann-s3cret", "twin")
)
BOTH: Final = "allow bind_v2"

ELEMENTS: Final = """
<Modules>
  <Module><Name>people</Name><Library>libamps_multi_authentication.so</Library>{loading}</Module>
</Modules>
<Authentication>
  <Module>people</Module>
  <Options>{options}</Options>
</Authentication>
{more}
"""


def elements(options: str, more: str = "", loading: str = "") -> str:
    return ELEMENTS.format(options=options, more=more, loading=loading)


def options_for(port: int, **more: str) -> str:
    """Options of the module, with the service account unless they say otherwise."""
    given = {
        "Host": "127.0.0.1",
        "Port": str(port),
        "BaseDN": BASE,
        "ServiceAccountDN": ACCOUNT,
        "ServiceAccountPasswordFile": "account.txt",
    } | more
    return "".join(f"<LDAP.{name}>{value}</LDAP.{name}>" for name, value in given.items() if value)


@contextmanager
def server_for(
    path: Path, port: int, more: str = "", general: str = "", **options: str
) -> Iterator[RunningServer]:
    (path / "account.txt").write_text(ACCOUNT_PASSWORD + "\n")
    text = elements(options_for(port, **options) + general, more)
    with running_server(path, elements=text, level="trace") as server:
        yield server


def refusal(server: RunningServer, user: str, password: str) -> str:
    """How a client is told that it may not log on."""
    with server.connect() as peer:
        ack = peer.log_on(user_id=user, pw=password)
        assert (ack["status"], ack["reason"]) == ("failure", "auth failure")
        assert peer.is_disconnected()
        return str(ack["detail"])


def logs_on(server: RunningServer, user: str, password: str) -> bool:
    with server.connect() as peer:
        return bool(peer.log_on(user_id=user, pw=password)["status"] == "success")
