"""How the page gets to browsers: which files, kept for how long, allowed to do what."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from server.admin.console.assets import STATIC
from tests.admin.console.servers import WEBSOCKET
from tests.admin.support import Admin, running_admin
from tests.support.server import free_port

_MAX_BYTES = 300 * 1024
OWN = sorted(path for path in STATIC.rglob("*.js") if "vendor" not in path.parts)
PAGE_LINKS = re.compile(r'(?:href|src)="(/console/[^"]+)"')


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    with running_admin(tmp_path_factory.mktemp("console")) as running:
        yield running


def files(admin: Admin) -> list[str]:
    """The paths of all files of the page."""
    base = admin.ask("/console/session.json").json["base"]
    found = [path for path in STATIC.rglob("*") if path.suffix in (".js", ".css", ".svg")]
    return [f"{base}/{path.relative_to(STATIC)}" for path in found]


def test_all_that_a_browser_loads_is_small(admin: Admin) -> None:
    replies = [admin.ask(path, Accept_Encoding="gzip") for path in ["/", *files(admin)]]
    assert {reply.status for reply in replies} == {200}
    assert sum(len(reply.body) for reply in replies) < _MAX_BYTES


def test_files_are_kept_by_browsers_and_the_page_is_not(admin: Admin) -> None:
    page = admin.ask("/")
    assert page.headers["cache-control"] == "no-cache"
    links = PAGE_LINKS.findall(page.text)
    assert len(links) == 5
    for link in links:
        reply = admin.ask(link)
        assert reply.status == 200
        assert "immutable" in reply.headers["cache-control"]


@pytest.mark.parametrize(
    "path",
    [
        "/console",
        "/console/0000000000000000/js/main.js",
        "{base}",
        "{base}/index.html",
        "{base}/js",
        "{base}/vendor/LICENSE.htm",
        "{base}/js/../../assets.py",
        "{base}/js/%2e%2e/js/main.js",
        "{base}/js%2fmain.js",
    ],
)
def test_nothing_else_is_sent(admin: Admin, path: str) -> None:
    base = admin.ask("/console/session.json").json["base"]
    reply = admin.ask(path.format(base=base))
    assert reply.status == 404
    assert "the console is at /." in reply.text


def test_the_page_may_do_very_little(admin: Admin) -> None:
    policies = {
        admin.ask(path).headers["content-security-policy"] for path in ["/", files(admin)[0]]
    }
    (policy,) = policies
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert rules["frame-ancestors"] == "'self'"
    assert rules["require-trusted-types-for"] == "'script'"
    assert "unsafe" not in policy


def test_the_page_may_reach_the_transport_for_queries(tmp_path: Path) -> None:
    port = free_port()
    transports = WEBSOCKET.format(port=port)
    with running_admin(
        tmp_path, "<SQLTransport>any-ws</SQLTransport>", transports=transports
    ) as admin:
        for host, source in (
            ("a.example:1", "a.example"),
            ("127.0.0.1", "127.0.0.1"),
            ("[::1]", "*"),
        ):
            policy = admin.ask("/", Host=host).headers["content-security-policy"]
            assert f"connect-src 'self' ws://{source}:{port};" in policy + ";"
        session = admin.ask("/console/session.json", Host="monitor.example:8085").json
        assert session["queries"] == f"ws://monitor.example:{port}"
        assert "__sql=true" in admin.ask("/").text


@pytest.mark.parametrize(
    ("written", "url", "source"),
    [
        ("proxy.example/four/wss", "ws://proxy.example/four/wss", "ws://proxy.example"),
        ("wss://proxy.example:9443/x", "wss://proxy.example:9443/x", "wss://proxy.example:9443"),
        ("wss://[proxy", "wss://[proxy", None),
        ("proxy.example;script-src *", "ws://proxy.example;script-src *", None),
    ],
)
def test_that_transport_may_be_elsewhere(
    tmp_path: Path, written: str, url: str, source: str | None
) -> None:
    section = (
        f"<SQLTransport>any-ws</SQLTransport><SQLTransportInetAddr>{written}</SQLTransportInetAddr>"
    )
    with running_admin(tmp_path, section, transports=WEBSOCKET.format(port=free_port())) as admin:
        assert admin.ask("/console/session.json").json["queries"] == url
        (connect,) = re.findall("connect-src ([^;]*)", _policy(admin))
        assert source is None or source in connect.split()
        assert _policy(admin).count("script-src") == 1


def test_the_console_can_be_switched_off(tmp_path: Path) -> None:
    with running_admin(tmp_path, "<Galvanometer>disabled</Galvanometer>") as admin:
        page = admin.ask("/")
        assert page.status == 200
        assert "<script" not in page.text
        assert 'href="/amps"' in page.text
        assert "__sql=false" in page.text
        assert admin.ask("/console/session.json").status == 404
        assert admin.ask("/amps/instance/name").status == 200


def _policy(admin: Admin) -> str:
    return admin.ask("/").headers["content-security-policy"]


@pytest.mark.parametrize("path", OWN, ids=lambda path: str(path.relative_to(STATIC)))
def test_modules_are_small_and_make_no_markup_of_text(path: Path) -> None:
    source = path.read_text()
    assert len(source.splitlines()) <= 300
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", source)
    assert not re.search(r"https?://", source)
