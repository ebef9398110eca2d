"""A Kerberos realm: MIT Kerberos's KDC, started as the user who runs the tests."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.support.server import free_port
from tests.support.waiting import WAIT_SECONDS, wait_until

_PLACES: Final = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin"
_PROGRAMS: Final = {
    name: shutil.which(name, path=_PLACES)
    for name in ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
}
needs_kdc = pytest.mark.skipif(
    None in _PROGRAMS.values(),
    reason="needs MIT Kerberos: apt-get install krb5-kdc krb5-admin-server krb5-user",
)

REALM: Final = "EXAMPLE.ORG"
SPN: Final = "AMPS/localhost"

_KRB5: Final = """
[libdefaults]
default_realm = {realm}
dns_lookup_kdc = false
dns_lookup_realm = false
dns_canonicalize_hostname = false
rdns = false
clockskew = 1
[realms]
{realm} = {{
  kdc = 127.0.0.1:{port}
}}
[domain_realm]
localhost = {realm}
"""

_KDC: Final = """
[kdcdefaults]
kdc_listen = 127.0.0.1:{port}
kdc_tcp_listen = 127.0.0.1:{port}
[realms]
{realm} = {{
  database_name = {directory}/principal
  key_stash_file = {directory}/stash
  acl_file = {directory}/acl
  max_life = 1h
}}
[logging]
kdc = FILE:{directory}/kdc.log
"""


@dataclass(frozen=True)
class Environment:
    """Lets a server know a realm; see `running_server`."""

    variables: dict[str, str]

    def __call__(self) -> None:
        """Called in the process that is to be the server."""
        os.environ.update(self.variables)


@dataclass(frozen=True)
class Realm:
    """A realm whose KDC runs.

    Attributes:
        directory: where its files are.
        keytab: the keys of the service.
        variables: the environment of programs that are to know it.
        process: the KDC.
    """

    directory: Path
    keytab: Path
    variables: dict[str, str]
    process: subprocess.Popen[bytes]

    def kinit(self, user: str, password: str, cache: Path, *options: str) -> dict[str, str]:
        """Get a ticket; the environment of programs that are to use it."""
        variables = self.variables | {"KRB5CCNAME": f"FILE:{cache}"}
        self._run(variables, "kinit", *options, user, told=f"{password}\n")
        return variables

    def make_keytab(self, principal: str, path: Path) -> Path:
        """Add a principal with keys of its own, or give it new keys."""
        self.kadmin(f"addprinc -randkey {principal}")
        self.kadmin(f"ktadd -k {path} {principal}")
        return path

    def kadmin(self, query: str) -> None:
        """Have something done with the realm's database."""
        self._run(self.variables, "kadmin.local", "-q", query)

    @staticmethod
    def _run(variables: dict[str, str], name: str, *arguments: str, told: str = "") -> None:
        program = _PROGRAMS[name]
        assert program is not None
        subprocess.run(
            [program, *arguments],
            check=True,
            env=os.environ | variables,
            input=told.encode(),
            capture_output=True,
            timeout=WAIT_SECONDS,
        )


@contextmanager
def running_realm(directory: Path, **users: str) -> Iterator[Realm]:
    """A realm with a service and users, by their names with their passwords."""
    port = free_port()
    (directory / "krb5.conf").write_text(_KRB5.format(realm=REALM, port=port))
    (directory / "kdc.conf").write_text(_KDC.format(realm=REALM, port=port, directory=directory))
    (directory / "rcache").mkdir()
    variables = {
        "KRB5_CONFIG": str(directory / "krb5.conf"),
        "KRB5_KDC_PROFILE": str(directory / "kdc.conf"),
        "KRB5RCACHEDIR": str(directory / "rcache"),
    }
    program = _PROGRAMS["krb5kdc"]
    assert program is not None
    Realm._run(variables, "kdb5_util", "create", "-s", "-r", REALM, "-P", "master")
    said = directory / "kdc.out"
    with open(said, "wb") as log:
        process = subprocess.Popen(
            [program, "-n"], env=os.environ | variables, stdout=log, stderr=log
        )
    realm = Realm(directory, directory / "amps.keytab", variables, process)
    try:
        wait_until(
            lambda: process.poll() is not None or _listens(port),
            said.read_text,
        )
        assert process.poll() is None, said.read_text()
        realm.make_keytab(SPN, realm.keytab)
        for user, password in users.items():
            realm.kadmin(f"addprinc -pw {password} {user}")
        yield realm
    finally:
        process.kill()
        process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
