"""Who may see what, and what pages of other sites may do."""

from __future__ import annotations

import base64
import re
import socket
from collections.abc import Iterator
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Final

import pytest

from config_schema.configuration_text import shown
from server.admin.csrf import CsrfProtection
from server.admin.http.messages import HttpDocument, HttpError, HttpRequest, HttpResponse
from server.security.cookies import COOKIE, CookieSessions
from server.transports.own_hosts import OwnHosts
from tests.admin.support import Admin, running_admin
from tests.support.waiting import WAIT_SECONDS

BASIC: Final = """
<WWWAuthenticate>Basic realm="AMPS Admin"</WWWAuthenticate>
<Authentication>
  <Module>amps-default-authentication-module</Module>
  <Options><RequireUsername>true</RequireUsername><AllowSpoofing>true</AllowSpoofing></Options>
</Authentication>
<AnonymousPaths>^/amps/instance/transports|^/$</AnonymousPaths>
"""


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    with running_admin(tmp_path_factory.mktemp("admin"), BASIC) as running:
        yield running


def basic(user: str, password: str = "") -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def cookie_of(set_cookie: str) -> str:
    return set_cookie.partition(";")[0]


@pytest.mark.parametrize(
    "shown",
    [
        "",
        basic(""),
        "Basic",
        "Basic !!!",
        "Basic " + base64.b64encode(b"\xff\xfe:x").decode(),
        "Bearer abc",
        "Negotiate YII=",
    ],
)
def test_who_shows_nothing_that_is_accepted_is_asked_to_log_on(admin: Admin, shown: str) -> None:
    headers = {"Authorization": shown} if shown else {}
    for path in ("/amps", "/amps.json", "/amps/instance/config.xml", "/nowhere"):
        reply = admin.ask(path, **headers)
        assert reply.status == 401
        assert reply.headers["www-authenticate"] == 'Basic realm="AMPS Admin"'
        assert "set-cookie" not in reply.headers
        assert reply.headers["cache-control"] == "no-store"
    assert not shown or admin.server.logs("19-0008")


def test_who_watches_has_to_log_on_again_after_a_reset(admin: Admin) -> None:
    credentials = basic("ann")
    reset = "/amps/administrator/authorization/authentication/reset"
    with socket.create_connection(("127.0.0.1", admin.port), WAIT_SECONDS) as connection:
        connection.sendall(
            b"GET /amps/instance/name?watch HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
            b"Authorization: %s\r\n\r\n" % credentials.encode()
        )
        stream = connection.makefile("rb")
        assert any(line.startswith(b"event: node") for line in stream)
        assert admin.ask(reset, "POST", Authorization=credentials).status == 200
        assert b"event: gone" not in stream.read()


def test_who_logs_on_gets_a_cookie_that_stands_for_that(admin: Admin) -> None:
    reply = admin.ask("/amps/instance/name.json", Authorization=basic("ann", "a:b"))
    assert reply.status == 200
    cookie = reply.headers["set-cookie"]
    assert re.fullmatch(
        rf"{COOKIE}=[\w-]{{43}}; max-age=86400; path=/; HttpOnly; SameSite=Strict", cookie
    )
    again = admin.ask("/amps/instance/name.json", Cookie=f"other=1; {cookie_of(cookie)}")
    assert (again.status, again.body) == (200, reply.body)
    assert "set-cookie" not in again.headers
    assert admin.ask("/amps", Cookie=f"{COOKIE}=guessed").status == 401
    both = admin.ask("/amps", Cookie=cookie_of(cookie), Authorization=basic(""))
    assert both.status == 401, "what is shown counts"


def test_a_reset_of_authorization_ends_sessions(admin: Admin) -> None:
    cookie = cookie_of(admin.ask("/amps", Authorization=basic("anna")).headers["set-cookie"])
    assert admin.ask("/amps", Cookie=cookie).status == 200
    path = "/amps/administrator/authorization/authentication/reset"
    assert admin.ask(path, Cookie=cookie).status == 200
    assert admin.ask("/amps", Cookie=cookie).status == 401


def test_who_logs_on_with_every_request_has_one_session(admin: Admin) -> None:
    replies = [admin.ask("/amps", Authorization=basic("bob")) for _ in range(3)]
    assert len({reply.headers["set-cookie"] for reply in replies}) == 1


def test_some_paths_are_for_everybody(admin: Admin) -> None:
    assert admin.ask("/").status == 200
    assert admin.ask("/amps/instance/transports.json").status == 200
    assert admin.ask("/amps/instance/transports/any-tcp/name").status == 200
    assert admin.ask("/amps/instance").status == 401
    assert admin.ask("/amps/instance/transports/../clients").status == 404
    assert admin.ask("/amps/instance/clients?/amps/instance/transports").status == 401


def test_a_browser_is_told_at_once_what_it_may_ask(admin: Admin) -> None:
    """It sends no credentials with that question."""
    assert admin.ask("/amps", "OPTIONS", Origin="https://a.example").status == 204


def test_negotiate_is_asked_for_by_itself_and_its_tokens_are_judged(tmp_path: Path) -> None:
    """The module decides; the cookie that follows has what the configuration says of it."""
    nobody = "<Authentication><Module>amps-default-no-authentication-module</Module>"
    with running_admin(tmp_path, f"{nobody}</Authentication>") as admin:
        for headers in ({}, {"Authorization": "Negotiate YIIabc=="}):
            reply = admin.ask("/amps", **headers)
            assert reply.status == 401
            assert reply.headers["www-authenticate"] == "Negotiate"
    anybody = "<Authentication><Module>amps-default-authentication-module</Module>"
    options = "<SessionOptions>path=/amps; SameSite=Lax</SessionOptions>"
    with running_admin(tmp_path, f"{options}{anybody}</Authentication>", level="trace") as admin:
        reply = admin.ask("/amps", Authorization="Negotiate YIIabc==")
        assert reply.status == 200
        assert reply.headers["set-cookie"].endswith("; path=/amps; SameSite=Lax")
        assert "set-cookie" not in admin.ask("/amps").headers, "nothing was shown"
        assert admin.server.logs("GET /amps: 200, ")
        assert "YIIabc" not in admin.server.log()


def test_what_the_instance_says_of_logons_is_said_of_this_interface(tmp_path: Path) -> None:
    """The default module accepts whoever comes, and so who comes without a name."""
    module = "<Authentication><Module>amps-default-no-authentication-module</Module>"
    elements = f"{module}</Authentication>"
    with running_admin(tmp_path, elements=elements) as admin:
        assert admin.ask("/amps").status == 401
    back = "<Authentication><Module>amps-default-authentication-module</Module></Authentication>"
    with running_admin(tmp_path, back, elements) as admin:
        assert admin.ask("/amps").status == 200


@pytest.mark.parametrize(
    "shown",
    [
        "Basic",
        "Basic ",
        "Basic !!!",
        "Basic " + base64.b64encode(b"\xff\xfe:x").decode(),
        "Basic " + base64.b64encode(b"ann, without a password").decode(),
        "Bearer abc",
        "Negotiate YII=",
        '"',
    ],
)
def test_what_cannot_be_read_is_refused_where_anybody_is_accepted(
    open_admin: Admin, shown: str
) -> None:
    reply = open_admin.ask("/amps.json", Authorization=shown)
    assert reply.status == 401
    assert reply.headers["www-authenticate"] == 'Basic realm="x"'
    assert "set-cookie" not in reply.headers
    assert open_admin.ask("/amps.json").status == 200
    assert open_admin.ask("/amps.json", Authorization=basic("")).status == 200


@pytest.fixture(scope="module")
def open_admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    """One whose module accepts anybody."""
    section = """
      <WWWAuthenticate>Basic realm="x"</WWWAuthenticate>
      <Authentication><Module>amps-default-authentication-module</Module></Authentication>
    """
    with running_admin(tmp_path_factory.mktemp("open"), section) as running:
        yield running


PROBED: Final = ("/healthz", "/healthz.json", "/readyz", "/readyz.json", "/metrics")


def test_probes_and_scrapes_need_a_logon_as_all_else(admin: Admin) -> None:
    for path in (*PROBED, "/metrics/detailed?family=clients"):
        assert admin.ask(path).status == 401
        assert admin.ask(path, Authorization=basic("prometheus")).status == 200


def test_probes_and_scrapes_may_be_for_everybody(tmp_path: Path) -> None:
    """The expression is that of docs/monitoring.md."""
    refuse = "<Entitlement><Module>amps-default-no-entitlement-module</Module></Entitlement>"
    logon = BASIC.partition("<AnonymousPaths>")[0]
    exempt = "<AnonymousPaths>^/(healthz|readyz|metrics)</AnonymousPaths>"
    with running_admin(tmp_path, logon + exempt + refuse) as admin:
        for path in (*PROBED, "/metrics/detailed?family=clients"):
            assert admin.ask(path).status == 200
        for path in ("/", "/amps", "/amps/metrics", "/amps.json", "/amps/administrator"):
            assert admin.ask(path).status == 401
        assert admin.ask("/amps", Authorization=basic("ann")).status == 403


def test_entitlement_decides_about_what_is_shown(tmp_path: Path) -> None:
    refuse = "<Module>amps-default-no-entitlement-module</Module>"
    anonymous = "<AnonymousPaths>^/amps/instance/pid$</AnonymousPaths>"
    with running_admin(tmp_path, f"{anonymous}<Entitlement>{refuse}</Entitlement>") as admin:
        for path in ("/amps", "/amps/instance/name", "/amps/instance/config.xml"):
            reply = admin.ask(path)
            assert reply.status == 403
            assert "entitlement" in reply.text
        assert admin.ask("/amps/instance/timestamp").status == 403
        assert admin.ask("/amps/instance/name?t0=20200101").status == 403
        assert admin.ask("/amps/instance/pid").status == 200


def test_sessions_are_bounded_and_end() -> None:
    sessions = CookieSessions(lifetime_s=60)
    first = sessions.begin_session("user", "credentials 0")
    kept = sessions.begin_session("user", "kept")
    for number in range(1_500):
        sessions.begin_session("user", f"credentials {number}")
        assert sessions.user_of(kept) == "user", "who is there stays"
    assert sessions.user_of(first) is None
    sessions.end_all()
    assert sessions.user_of(kept) is None
    over = CookieSessions(lifetime_s=-1)
    assert over.user_of(over.begin_session("user", "x")) is None


# other sites


def request(method: str = "GET", **headers: str) -> HttpRequest:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return HttpRequest(method, "/", {}, {"host": "here:8085", **named})


PATTERN: Final = r"https://.*\.my\.com"

READING = [
    (None, {}, "*"),
    (None, {"origin": "https://evil.example"}, "*"),
    (PATTERN, {"origin": "https://nyc.us.my.com"}, "https://nyc.us.my.com"),
    (PATTERN, {"origin": "https://evil.example"}, "http://here:8085"),
    (PATTERN, {"origin": "https://my.com.evil.example"}, "http://here:8085"),
    (PATTERN, {}, "http://here:8085"),
]


OPEN_READING = [
    (None, {}, "http://here:8085", False),
    (None, {"origin": "http://here:8085"}, "http://here:8085", False),
    (None, {"origin": "http://here:3000"}, "http://here:3000", False),
    (None, {"origin": "https://plant"}, "https://plant", False),
    (None, {"origin": "http://localhost:3000"}, "http://localhost:3000", False),
    (None, {"origin": "http://127.0.0.1:3000"}, "http://127.0.0.1:3000", False),
    (None, {"origin": "http://[::1]:3000"}, "http://[::1]:3000", False),
    (None, {"origin": "http://10.0.0.1:3000"}, "http://here:8085", True),
    (None, {"origin": "https://evil.example"}, "http://here:8085", True),
    (None, {"origin": "http://localhost.evil.example"}, "http://here:8085", True),
    (None, {"origin": "http://[broken"}, "http://here:8085", True),
    (None, {"origin": "null"}, "http://here:8085", True),
    ("*", {"origin": "https://evil.example"}, "*", False),
    (PATTERN, {"origin": "https://nyc.us.my.com"}, "https://nyc.us.my.com", False),
    (PATTERN, {"origin": "https://evil.example"}, "http://here:8085", True),
]


@pytest.mark.parametrize(("pattern", "headers", "granted", "is_refused"), OPEN_READING)
def test_pages_that_may_read_where_nobody_logs_on(
    pattern: str | None, headers: dict[str, str], granted: str, is_refused: bool
) -> None:
    csrf = CsrfProtection(pattern, OwnHosts(["plant", "here"]), is_unauthenticated=True)
    response = HttpResponse(HttpDocument(b"", ""))
    csrf.add_cors_headers(request(**headers), response)
    assert dict(response.headers)["Access-Control-Allow-Origin"] == granted
    if is_refused:
        with pytest.raises(HttpError, match="AccessControlAllowOrigin"):
            csrf.refuse_foreign_reader(request(**headers))
    else:
        csrf.refuse_foreign_reader(request(**headers))


@pytest.mark.parametrize(("pattern", "headers", "granted"), READING)
def test_who_may_read(pattern: str | None, headers: dict[str, str], granted: str) -> None:
    response = HttpResponse(HttpDocument(b"", ""))
    CsrfProtection(pattern).add_cors_headers(request(**headers), response)
    found = dict(response.headers)
    assert found["Access-Control-Allow-Origin"] == granted
    assert ("Vary" in found) is (pattern is not None)


ACTING = [
    (None, {}, True),  # a script
    (None, {"sec_fetch_site": "none"}, True),  # somebody has typed it
    (None, {"sec_fetch_site": "same-origin", "origin": "http://here:8085"}, True),
    (None, {"sec_fetch_site": "cross-site"}, False),  # a picture on another site
    (None, {"sec_fetch_site": "same-site"}, False),
    (None, {"origin": "https://evil.example"}, False),
    (None, {"origin": "null"}, False),
    (None, {"origin": "http://here:8086"}, False),
    (None, {"origin": "https://here:8085"}, False),
    (None, {"referer": "https://evil.example/page"}, False),
    (None, {"referer": "http://here:8085/amps"}, True),
    (None, {"referer": "http://[broken"}, False),
    (PATTERN, {"origin": "https://nyc.us.my.com", "sec_fetch_site": "cross-site"}, True),
    (PATTERN, {"referer": "https://nyc.us.my.com/x", "sec_fetch_site": "cross-site"}, True),
    (PATTERN, {"origin": "https://evil.example"}, False),
    (PATTERN, {"sec_fetch_site": "cross-site"}, False),
    (PATTERN, {}, True),
]


@pytest.mark.parametrize(("pattern", "headers", "may"), ACTING)
def test_who_may_act(pattern: str | None, headers: dict[str, str], may: bool) -> None:
    csrf = CsrfProtection(pattern)
    if may:
        csrf.refuse_foreign_request(request(**headers))
        return
    with pytest.raises(HttpError) as refused:
        csrf.refuse_foreign_request(request(**headers))
    assert refused.value.status == 403


@pytest.mark.parametrize(
    ("host", "may"),
    [
        ("127.0.0.1:8085", True),
        ("[::1]:8085", True),
        ("localhost:8085", True),
        ("Plant:8085", True),
        ("evil.example:8085", False),
        ("plant.evil.example:8085", False),
        ("localhost.evil.example", False),
        ("[broken", False),
        ("", False),
    ],
)
def test_browsers_use_a_known_name_where_nobody_logs_on(host: str, may: bool) -> None:
    """A name that leads here may be anybody's, and its pages are on one site with us."""
    guarded = CsrfProtection(None, OwnHosts(["plant"]), is_unauthenticated=True)
    open_to_all = CsrfProtection(None)
    for headers in ({"accept_language": "en"}, {"user_agent": "Mozilla/5.0"}):
        asked = request(host=host, **headers)
        open_to_all.refuse_foreign_request(asked)
        open_to_all.refuse_foreign_reader(asked)
        for refuse in (guarded.refuse_foreign_request, guarded.refuse_foreign_reader):
            if may:
                refuse(asked)
            else:
                with pytest.raises(HttpError, match="ExternalInetAddr"):
                    refuse(asked)
    guarded.refuse_foreign_request(request(host=host, user_agent="curl/7.88"))
    guarded.refuse_foreign_reader(request(host=host, user_agent="curl/7.88"))
    asked = request(host=host, accept_language="en")
    CsrfProtection("*", OwnHosts(["plant"]), is_unauthenticated=True).refuse_foreign_reader(asked)
    CsrfProtection(
        f"http://{re.escape(host)}", OwnHosts(["plant"]), is_unauthenticated=True
    ).refuse_foreign_reader(asked)


FORGEABLE = [
    ({}, False),  # curl
    ({"user_agent": "python-requests/2.31", "accept_encoding": "gzip"}, False),
    ({"user_agent": "Mozilla/5.0"}, True),
    ({"accept_language": "*"}, True),
    ({"upgrade_insecure_requests": "1"}, True),
    ({"sec_purpose": "prefetch"}, True),
    ({"sec_fetch_site": "none"}, True),
    ({"referer": "http://here:8085/amps"}, True),
    ({"user_agent": "Mozilla/5.0", "origin": "http://here:8085"}, False),
    ({"user_agent": "Mozilla/5.0", "x_requested_with": "x"}, False),
]


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(("headers", "expected"), FORGEABLE)
def test_requests_that_any_page_can_have_a_browser_send(
    method: str, headers: dict[str, str], expected: bool
) -> None:
    assert CsrfProtection(None).is_forgeable(request(method, **headers)) is expected


def test_a_server_tells_which_sites_may_read(tmp_path: Path) -> None:
    allowed = f"<AccessControlAllowOrigin>{PATTERN}</AccessControlAllowOrigin>"
    with running_admin(tmp_path, f"{allowed}<Header>Vary: Accept</Header>") as admin:
        headers = admin.ask("/amps.json", Origin="https://lon.uk.my.com").headers
        assert headers["access-control-allow-origin"] == "https://lon.uk.my.com"
        assert set(headers["vary"].split(", ")) == {"Origin", "Accept-Encoding", "Accept"}
        before = admin.ask("/amps.json", "OPTIONS", Origin="https://lon.uk.my.com")
        assert before.headers["access-control-allow-methods"] == "GET, HEAD, POST, OPTIONS"


# the configuration

SHOWN = [
    ("<Password>a</Password>", "<Password>********</Password>"),
    ("<password a='1'>a</password >", "<password a='1'>********</password >"),
    ("<Password>\n<![CDATA[a<b]]>\n</Password>", "<Password>********</Password>"),
    (
        "<ClientSecret>a</ClientSecret><Key>b</Key>",
        "<ClientSecret>********</ClientSecret><Key>b</Key>",
    ),
    ("<PasswordFileName>a</PasswordFileName>", "<PasswordFileName>a</PasswordFileName>"),
    ("<X password=\"a\" b='c'/>", "<X password=\"********\" b='c'/>"),
    (
        "<InetAddr>tcp://me:pass@host:9007/amps</InetAddr>",
        "<InetAddr>tcp://me:********@host:9007/amps</InetAddr>",
    ),
    ("<InetAddr>http://host:80/a@b</InetAddr>", "<InetAddr>http://host:80/a@b</InetAddr>"),
    ("<Name>a</Name> <!-- é -->", "<Name>a</Name> <!-- é -->"),
    ("<X>http://me:p@ss@host/a</X>", "<X>http://me:********@host/a</X>"),
    ("<InetAddr>me:pass@host:9</InetAddr>", "<InetAddr>me:********@host:9</InetAddr>"),
    (
        "<URI>http://h/p?token=a&amp;user=me&amp;api_key=b#c</URI>",
        "<URI>http://h/p?token=********&amp;user=me&amp;api_key=********#c</URI>",
    ),
    ("<Header>X-Api-Key: a b</Header>", "<Header>X-Api-Key: ********</Header>"),
    ("<Header>Vary: Accept</Header>", "<Header>Vary: Accept</Header>"),
    ("<Header>Set-Cookie: a=b; c</Header>", "<Header>Set-Cookie: ********</Header>"),
    (
        "<Command>sshpass -p a1 ssh -p 22 h; sshpass -p 1234 x; sshpass -p 'b c' y</Command>",
        (
            "<Command>sshpass -p ******** ssh -p 22 h; sshpass -p ******** x; "
            "sshpass -p '********' y</Command>"
        ),
    ),
    (
        "<Command>any -p SECRET ; any -p &quot;S&quot; ; mysql -pS ; redis-cli -a S</Command>",
        (
            "<Command>any -p ******** ; any -p ******** ; mysql -p******** ; "
            "redis-cli -a ********</Command>"
        ),
    ),
    (
        "<Command>mkdir -p /a/b; docker run -p 127.0.0.1:1:1 i; git log -p | cat</Command>",
        "<Command>mkdir -p /a/b; docker run -p 127.0.0.1:1:1 i; git log -p | cat</Command>",
    ),
    (
        """<Command>curl -u me:a --header "Authorization: Bearer b" -o c</Command>""",
        """<Command>curl -u me:******** --header "Authorization: ********" -o c</Command>""",
    ),
    (
        """<Command>curl --user 'me:a b' -Ume:c 'X-Auth-Token:d&amp;e'</Command>""",
        """<Command>curl --user 'me:********' -Ume:******** 'X-Auth-Token:********'</Command>""",
    ),
    (
        """<Command>A_SECRET=a x --api-key "b c" --token d --pins e</Command>""",
        """<Command>A_SECRET=******** x --api-key "********" --token ******** --pins e</Command>""",
    ),
    ("<Command>say Bearer a.b-c==</Command>", "<Command>say Bearer ********</Command>"),
    ("<A>Basic realm=one</A><B>Basic authentication</B>",) * 2,
    ("<Filter>/design='a' AND /key=3</Filter>",) * 2,
]


@pytest.mark.parametrize(("text", "expected"), SHOWN)
def test_what_is_secret_in_a_configuration_is_hidden(text: str, expected: str) -> None:
    assert shown(text) == expected
    assert shown(expected) == expected


def test_values_of_secret_variables_are_hidden_wherever_they_are() -> None:
    """Not in the names of elements, and not if they are too short to be told from other words."""
    text = "<Name><X>a&amp;bc</X><Y>see a&amp;bc: Name</Y><Z>a</Z></Name>"
    expected = "<Name><X>********</X><Y>see ********: ********</Y><Z>a</Z></Name>"
    assert shown(text, {"a&bc", "Name", "a"}) == expected


def test_cookies_are_what_browsers_read(admin: Admin) -> None:
    reply = admin.ask("/amps", Authorization=basic("carl"))
    read = SimpleCookie(reply.headers["set-cookie"])
    assert read[COOKIE]["httponly"]
    assert read[COOKIE]["samesite"] == "Strict"
