"""OAuth: which options are refused, where that is said, and that secrets are shown nowhere."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from tests.admin.support import ask
from tests.security.oauth.support import CODES, RSA, SECRET, TOKENS, module
from tests.support.issuer import AUDIENCE, ISSUER, key_set
from tests.support.server import CONFIGURATION, amp_server, free_port, running_server, why_no_start

BAD_OPTIONS: Final = {
    "a key set of another scheme": (
        TOKENS.format(source="ftp://h/keys"),
        "KeySet: cannot be used: expected a URL such as",
    ),
    "no issuer": (
        TOKENS.format(source="http://h/keys").replace(ISSUER, " "),
        "Issuer: is empty",
    ),
    "no audience": (
        TOKENS.format(source="http://h/keys").replace(AUDIENCE, ""),
        "Audience: is empty",
    ),
    "neither": ("", "needs at least 1 of TokenEndpoint, KeySet"),
    "half": ("<TokenEndpoint>http://h/</TokenEndpoint>", "it is required with TokenEndpoint"),
    "keys alone": ("<KeySet>keys.json</KeySet>", "it is required with KeySet"),
    "no URL": (CODES.replace("{url}", "ftp://h"), "TokenEndpoint: cannot be used: expected a URL"),
    "a user": (CODES.replace("{url}", "http://u:hidden@h"), "it contains a user"),
    "no URL of keys": (TOKENS.format(source="http:x"), "KeySet: cannot be used: expected a URL"),
    "no time": (TOKENS.format(source="k") + "<RequestTimeout>0</RequestTimeout>", "RequestTimeout"),
    "no header": (
        CODES.replace("{url}", "https://h") + "<HTTPHeader>hidden</HTTPHeader>",
        "HTTPHeader: cannot be used: expected a name",
    ),
    "another grant": (CODES + "<GrantType>password</GrantType>", "GrantType"),
    "an algorithm with a secret": (
        TOKENS.format(source="k") + "<Algorithms>RS256,HS256</Algorithms>",
        "HS256",
    ),
    "none": (TOKENS.format(source="k") + "<Algorithms>none</Algorithms>", "none"),
}


@pytest.mark.parametrize(("options", "said"), BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_options_are_verified(tmp_path: Path, options: str, said: str) -> None:
    told = why_no_start(tmp_path, module(options))
    assert said in told
    assert "hidden" not in told


def test_files_are_looked_at_when_a_configuration_is_verified(tmp_path: Path) -> None:
    """They may be on another machine: what is wrong with them is a warning."""
    os.mkfifo(tmp_path / "pipe")
    for options, said in (
        (TOKENS.format(source="nowhere.json"), "KeySet: nowhere.json: No such file or directory"),
        (TOKENS.format(source="pipe"), "KeySet: pipe: it is a pipe and no file"),
        (
            CODES.format(url="https://h") + "<CAKey>pipe</CAKey>",
            "CAKey: pipe: it is a pipe and no file",
        ),
    ):
        text = CONFIGURATION.format(port=0, transports="", level="info", elements=module(options))
        (tmp_path / "config.xml").write_text(text)
        verified = amp_server("--verify-config", "config.xml", cwd=tmp_path)
        assert f"warning: Options/{said}" in verified.stdout + verified.stderr
        assert verified.returncode == 0


def test_who_uses_codes_alone_is_warned(tmp_path: Path) -> None:
    elements = module(CODES.format(url="http://localhost:1"))
    with running_server(tmp_path, elements=elements) as server:
        assert server.logs("get the user name that they claim")
    (tmp_path / "keys.json").write_bytes(key_set(RSA))
    with running_server(tmp_path, elements=module(TOKENS.format(source="keys.json"))) as server:
        assert "that they claim" not in server.log()


BAD_VALUES: Final = {
    "no file": (TOKENS.format(source="nowhere.json"), "KeySet nowhere.json: there is no such file"),
    "no authority": (CODES.replace("{url}", "https://h") + "<CAKey>no.pem</CAKey>", "CAKey no.pem"),
}


@pytest.mark.parametrize(("options", "said"), BAD_VALUES.values(), ids=BAD_VALUES)
def test_values_that_cannot_be_used_end_the_start(tmp_path: Path, options: str, said: str) -> None:
    told = why_no_start(tmp_path, module(options))
    assert said in told
    assert "hidden" not in told


def test_secrets_are_shown_nowhere(tmp_path: Path) -> None:
    port = free_port()
    everybody = "<Module>amps-default-authentication-module</Module>"
    admin = (
        f"<Admin><InetAddr>127.0.0.1:{port}</InetAddr>"
        f"<Authentication>{everybody}</Authentication></Admin>"
    )
    header = "<HTTPHeader>Authorization: Basic c2VjcmV0</HTTPHeader>"
    elements = module(CODES.format(url="http://localhost:1") + header) + admin
    with running_server(tmp_path, elements=elements, level="trace") as server:
        shown = ask(port, "/amps/instance/config.xml").text
        assert "ClientSecret" in shown
        log = server.log()
    explained = amp_server("--explain-actions", tmp_path / "config.xml").stdout
    graph = amp_server("--graph", tmp_path / "config.xml").stdout
    for text in (shown, log, explained, graph):
        assert SECRET not in text
        assert "c2VjcmV0" not in text
