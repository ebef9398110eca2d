"""What is wrong with the options of the web service module is found before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.server import amp_server

CONFIGURATION = """<AMPSConfig>
<Name>checked</Name>
<Modules><Module><Name>web</Name><Library>libamps_http_entitlement.so</Library>
<Options>{loaded}</Options>
</Module></Modules>
<Transports><Transport>
<Name>t</Name><Type>tcp</Type><InetAddr>localhost:9007</InetAddr><Protocol>amps</Protocol>
<Authentication><Module>{module}</Module><Options>
{authentication}
</Options></Authentication>
<Entitlement><Module>web</Module><Options>
{entitlement}
</Options></Entitlement>
</Transport></Transports>
<Logging><Target><Protocol>stdout</Protocol><Level>none</Level></Target></Logging>
</AMPSConfig>
"""
URI = "<ResourceURI>http://localhost:1/{{USER_NAME}}</ResourceURI>"
HTTPS = "<ResourceURI>https://localhost:1/{{USER_NAME}}</ResourceURI>"


def verify(
    directory: Path,
    loaded: str = "",
    authentication: str = "",
    entitlement: str = "",
    module: str = "web",
) -> tuple[int, list[str]]:
    """The exit code of a check, and what it prints."""
    path = directory / "config.xml"
    path.write_text(
        CONFIGURATION.format(
            loaded=loaded, authentication=authentication, entitlement=entitlement, module=module
        )
    )
    run = amp_server("--verify-config", "config.xml", cwd=directory)
    assert "Traceback" not in run.stderr + run.stdout
    return run.returncode, run.stderr.splitlines()


@pytest.mark.parametrize(
    ("loaded", "authentication", "entitlement"),
    [
        (URI, "", ""),
        ("", URI, URI),
        ("", URI, "<CredentialStore>users</CredentialStore>"),
        (URI + "<ReuseConnections>enabled</ReuseConnections>", "", ""),
        (URI, "<EntitlementTimeout>500</EntitlementTimeout><RetryCount>2</RetryCount>", ""),
        (URI, "<EntitlementTimeout>1m</EntitlementTimeout>", ""),
        (URI, "<HTTPHeader>x: A</HTTPHeader><HTTPHeader>a: {{USER_NAME}}</HTTPHeader>", ""),
        (HTTPS, "", ""),
        (HTTPS, "<AllowUnverifiedPeer>true</AllowUnverifiedPeer>", ""),
    ],
)  # fmt: skip
def test_options_of_loading_are_inherited(
    tmp_path: Path, loaded: str, authentication: str, entitlement: str
) -> None:
    code, lines = verify(tmp_path, loaded, authentication, entitlement)
    assert (code, len(lines)) == (0, 1), lines


def test_with_entitlement_only_somebody_else_authenticates(tmp_path: Path) -> None:
    module = "amps-default-authentication-module"
    code, lines = verify(tmp_path, URI + "<EntitlementOnly/>", module=module)
    assert (code, len(lines)) == (0, 1), lines


@pytest.mark.parametrize(
    ("loaded", "authentication", "entitlement", "line", "said"),
    [
        ("", "", URI, 8, "ResourceURI: is missing but required"),
        ("", URI, "", 11, "needs at least 1 of ResourceURI, CredentialStore"),
        ("", "<ResourceURI>ftp://h/</ResourceURI>", URI, 9, "cannot be used: expected"),
        ("", "<ResourceURI>/users</ResourceURI>", URI, 9, "cannot be used: expected a URL"),
        ("", "<ResourceURI>http://h:x/</ResourceURI>", URI, 9, "ResourceURI: cannot be used: "),
        ("", "<ResourceURI>http://a:b@h/</ResourceURI>", URI, 9, "it contains a user"),
        ("", "<ResourceURI>http://{{USER_NAME}}/</ResourceURI>", URI, 9, "expected it in the path"),
        ("", "<ResourceURI>http://h/{{USER_NAME}</ResourceURI>", URI, 9, "that does not end"),
        ("", "<ResourceURI>http://h/{{USER}}</ResourceURI>", URI, 9, "{{USER}} is not known"),
        (URI, "<ConnectionTimeout>0</ConnectionTimeout>", "", 9, "has to be 1 at least"),
        (URI, "<RequestTimeout>5s</RequestTimeout>", "", 9, "is not a count"),
        (URI, "<RetryCount>often</RetryCount>", "", 9, "is not a count"),
        (URI, "<EntitlementTimeout>soon</EntitlementTimeout>", "", 9, "is not an interval"),
        (URI, "<HTTPHeader>secret-1</HTTPHeader>", "", 9, "expected a name, a colon and a value"),
        (URI, "<HTTPHeader>Content-Length: 5</HTTPHeader>", "", 9, "Content-Length is not for"),
        (URI, "<HTTPHeader>x: {{PASSWORD}}</HTTPHeader>", "", 9, "{{PASSWORD}} is not known"),
        (URI, "<ReuseConnections>maybe</ReuseConnections>", "", 9, "is not a switch"),
        (URI, "<Key>k.pem</Key>", "", 8, "Certificate: is missing: Key is the key"),
        (URI, "<CAFile>ca.pem</CAFile>", "", 9, "is not an option of libamps_http_entitlement.so"),
        (URI, "<EntitlementOnly/>", "", 9, "the module cannot authenticate users"),
        (URI, "<EntitlementOnly>perhaps</EntitlementOnly>", "", 9, "is not a switch"),
        ("<EntitlementOnly/>", URI, "", 11, "needs at least 1 of ResourceURI"),
        (URI + "<HTTPHeader>x</HTTPHeader>", "", "", 4, "expected a name, a colon and a value"),
    ],
)  # fmt: skip
def test_mistakes_are_located(
    tmp_path: Path, loaded: str, authentication: str, entitlement: str, line: int, said: str
) -> None:
    code, lines = verify(tmp_path, loaded, authentication, entitlement)
    assert code == 1
    found = [one for one in lines if one.startswith(f"config.xml:{line}: error: ")]
    assert any(said in one for one in found), lines
    assert not any("secret-1" in one or "a:b@" in one for one in lines)


@pytest.mark.parametrize(
    ("loaded", "authentication", "line", "said"),
    [
        (URI, "<ReuseConnections>enabled</ReuseConnections>", 9, "has no effect here"),
        (HTTPS, "<CAKey>missing.pem</CAKey>", 8, "CAKey missing.pem: no such file or directory"),
        (HTTPS, "<CAKey>config.xml</CAKey>", 8, "CAKey config.xml: "),
        (HTTPS, "<Certificate>config.xml</Certificate>", 8, "expected a certificate and its key"),
        (HTTPS + "<Certificate>c.pem</Certificate>", "<Key>k.pem</Key>", 8, "no such file"),
    ],
)
def test_what_may_be_meant_for_another_machine_is_a_warning(
    tmp_path: Path, loaded: str, authentication: str, line: int, said: str
) -> None:
    code, lines = verify(tmp_path, loaded, authentication)
    assert code == 0
    found = [one for one in lines if one.startswith(f"config.xml:{line}: warning: ")]
    assert any(said in one for one in found), lines
