"""LDAP and Kerberos: options that cannot be used end the start."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from tests.security.ldap.support import elements
from tests.support.server import why_no_start

HOST: Final = "<LDAP.Host>h</LDAP.Host>"
DEFAULT: Final = "DefaultAuthenticationMechanism"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("", "LDAP.Host: is missing, and so is Kerberos.SPN: expected either LDAP or Kerberos"),
        ("<LDAP.Port>389</LDAP.Port>", "LDAP.Host: is missing"),
        (
            f"{HOST}<Kerberos.SPN>a/b</Kerberos.SPN><Kerberos.Keytab>k</Kerberos.Keytab>",
            "LDAP.Host: there are options of both: expected either LDAP or Kerberos",
        ),
        (f"{HOST}<LDAP.Prot>3</LDAP.Prot>", "is not an option of"),
        (f"{HOST}<LDAP.Port>0</LDAP.Port>", "expected a number from 1 to 65535"),
        (
            f"{HOST}<LDAP.Port>99999</LDAP.Port>",
            "expected a number from 1 to 65535",
        ),
        (f"{HOST}<LDAP.ProtocolVersion>4</LDAP.ProtocolVersion>", "expected"),
        (f"{HOST}<AllowAnonymous>perhaps</AllowAnonymous>", "expected"),
        (
            f"{HOST}<LDAP.Encryption>starttls</LDAP.Encryption>",
            "LDAP.Encryption: starttls needs LDAP.ProtocolVersion 3",
        ),
        (
            f"{HOST}<LDAP.Encryption>ldaps</LDAP.Encryption><LDAP.CAFile>missing.pem</LDAP.CAFile>",
            "LDAP.CAFile missing.pem: No such file",
        ),
        ("<LDAP.Host>ldap://h:1</LDAP.Host>", "LDAP.Host: is ldap://h:1: expected a name"),
        (
            f"{HOST}<LDAP.UserAttribute>a)(b</LDAP.UserAttribute>",
            "LDAP.UserAttribute: is a)(b: expected a name such as uid",
        ),
        (f"{HOST}<LDAP.Encryption>tls</LDAP.Encryption>", "tls"),
        (
            f"{HOST}<LDAP.Encryption>ldaps</LDAP.Encryption><LDAP.CAFile>pipe</LDAP.CAFile>",
            "LDAP.CAFile pipe: it is a pipe and no file",
        ),
        (
            "<Kerberos.SPN>a/b</Kerberos.SPN><Kerberos.Keytab>pipe</Kerberos.Keytab>",
            "it is a pipe and no file",
        ),
        (
            f"{HOST}<Kerberos.Keytab>k</Kerberos.Keytab>",
            "LDAP.Host: there are options of both",
        ),
        (
            f"{HOST}<{DEFAULT}>Kerberos</{DEFAULT}>",
            "DefaultAuthenticationMechanism: is Kerberos, and the module is configured for LDAP",
        ),
        ("<Kerberos.SPN>a/b</Kerberos.SPN>", "Kerberos.Keytab: is missing"),
        (
            "<Kerberos.SPN>a/b</Kerberos.SPN><Kerberos.Keytab>no.keytab</Kerberos.Keytab>",
            "Kerberos.Keytab no.keytab: no keys of a/b",
        ),
    ],
)
def test_options_that_cannot_be_used(tmp_path: Path, options: str, said: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    found = why_no_start(tmp_path, elements(options))
    assert said in found
    assert "config.xml:" in found
