"""A directory: OpenLDAP's slapd, started as the user who runs the tests."""

from __future__ import annotations

import base64
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

SLAPD: Final = shutil.which("slapd", path="/usr/sbin:/usr/local/sbin:/usr/bin")
SLAPADD: Final = shutil.which("slapadd", path="/usr/sbin:/usr/local/sbin:/usr/bin")
needs_slapd = pytest.mark.skipif(
    SLAPD is None, reason="needs OpenLDAP's server: apt-get install slapd"
)

BASE: Final = "ou=people,dc=example,dc=org"
ACCOUNT: Final = "cn=amps,dc=example,dc=org"
ACCOUNT_PASSWORD: Final = "account-s3cret"

_CONFIGURATION: Final = """
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/inetorgperson.schema
modulepath /usr/lib/ldap
moduleload back_mdb
pidfile {directory}/slapd.pid
{more}
database mdb
maxsize 10485760
suffix "dc=example,dc=org"
directory {directory}/data
access to attrs=userPassword by anonymous auth by * none
access to dn.subtree="{base}" by dn.exact="{account}" read by anonymous {anonymous} by * none
access to * by * none
"""

_ENTRIES: Final = """
dn: dc=example,dc=org
objectClass: dcObject
objectClass: organization
o: Example
dc: example

dn: ou=people,dc=example,dc=org
objectClass: organizationalUnit
ou: people

dn: {account}
objectClass: applicationProcess
objectClass: simpleSecurityObject
cn: amps
userPassword: {password}
"""

_PERSON: Final = """
dn: {dn}
objectClass: inetOrgPerson
cn: {cn}
sn: Somebody
{names}
userPassword:: {password}
"""


@dataclass(frozen=True)
class RunningDirectory:
    """A directory that runs.

    Attributes:
        port: where it listens.
        tls_port: where it listens for connections that are encrypted from the beginning on.
    """

    port: int
    tls_port: int
    process: subprocess.Popen[bytes]


def person(dn: str, password: str, *names: str) -> str:
    """An entry of a person whom the directory knows by names (`uid`)."""
    lines = "\n".join(f"uid:: {base64.b64encode(name.encode()).decode()}" for name in names)
    secret = base64.b64encode(password.encode()).decode()
    return _PERSON.format(
        dn=dn, cn=dn.split(",")[0].partition("=")[2], names=lines, password=secret
    )


@contextmanager
def running_directory(
    directory: Path, people: str, more: str = "", anonymous: str = "auth", tls: str = ""
) -> Iterator[RunningDirectory]:
    """A directory, stopped in the end.

    Args:
        directory: where it keeps its files.
        people: entries.
        more: lines of its configuration.
        anonymous: what nobody in particular may do with people: `auth` or `read`.
        tls: lines of its configuration about certificates; empty for none.
    """
    assert SLAPD is not None
    assert SLAPADD is not None
    (directory / "data").mkdir(parents=True)
    configuration = directory / "slapd.conf"
    configuration.write_text(
        _CONFIGURATION.format(
            directory=directory,
            more=more + "\n" + tls,
            base=BASE,
            account=ACCOUNT,
            anonymous=anonymous,
        )
    )
    entries = directory / "entries.ldif"
    entries.write_text(_ENTRIES.format(account=ACCOUNT, password=ACCOUNT_PASSWORD) + people)
    subprocess.run(
        [SLAPADD, "-q", "-f", configuration, "-l", entries],
        check=True,
        timeout=WAIT_SECONDS,
        capture_output=True,
    )
    port, tls_port = free_port(), free_port()
    where = f"ldap://127.0.0.1:{port}" + (f" ldaps://127.0.0.1:{tls_port}" if tls else "")
    said = directory / "slapd.log"
    with open(said, "wb") as log:
        process = subprocess.Popen(
            [SLAPD, "-h", where, "-f", configuration, "-d", "0"], stdout=log, stderr=log
        )
    try:
        wait_until(
            lambda: process.poll() is not None or _listens(port),
            said.read_text,
        )
        assert process.poll() is None, said.read_text()
        yield RunningDirectory(port, tls_port, process)
    finally:
        process.kill()
        process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
