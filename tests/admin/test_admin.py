"""The admin interface of a server that runs."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from server.admin.http.messages import JSON
from server.statistics.timestamps import from_text, to_text
from tests.admin.support import Admin, ask, running_admin
from tests.support.server import free_port, running_server, why_no_start
from tests.support.waiting import WAIT_SECONDS, wait_until
from tests.transports.test_addresses import needs_ipv6

MOMENT: Final = re.compile(r"\d{8}T\d{6}\.\d{6}Z")
SECRET: Final = "hunter2"
ELEMENTS: Final = f"""
<Description>A &lt;test&gt;</Description>
<!-- <Password>{SECRET}</Password> -->
"""


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    header = "<Header>X-Special: a, b</Header><Header>X-Frame-Options: DENY</Header>"
    with running_admin(tmp_path_factory.mktemp("admin"), header, ELEMENTS) as running:
        wait_until(lambda: len(moments(running)) >= 3)
        yield running


def moments(admin: Admin) -> list[str]:
    """When samples have been taken."""
    return admin.ask("/amps/instance/timestamp").text.split()


FORMS: Final = {
    "/amps": "text/html; charset=utf-8",
    "/amps/": "text/html; charset=utf-8",
    "/amps/instance/pid": "text/html; charset=utf-8",
    "/amps.json": JSON,
    "/amps/host/cpu.json": JSON,
    "/amps/instance/pid.json": JSON,
    "/amps.xml": "application/xml; charset=utf-8",
    "/amps/instance/transports/any-tcp.xml": "application/xml; charset=utf-8",
    "/amps/instance/pid.csv": "text/csv; charset=utf-8",
    "/amps/instance/pid?t0=2020": "",
    "/amps/instance/pid?t0=20200101": "text/plain; charset=utf-8",
    "/amps/instance/pid.csv?t0=20200101": "text/csv; charset=utf-8",
    "/amps/instance/pid.json?t0=20200101": JSON,
    "/amps/instance/pid.xml?t1=29991231T23": "application/xml; charset=utf-8",
    "/amps/instance/timestamp": "text/plain; charset=utf-8",
    "/amps/instance/timestamp.json": JSON,
    "/amps.rnc": "application/relax-ng-compact-syntax",
    "/amps/instance/config.xml": "application/xml; charset=utf-8",
}


@pytest.mark.parametrize("path", [path for path, kind in FORMS.items() if kind])
def test_a_path_is_shown_in_the_form_that_its_end_asks_for(admin: Admin, path: str) -> None:
    reply = admin.ask(path)
    assert reply.status == 200
    assert reply.headers["content-type"] == FORMS[path]
    assert admin.ask(path, "HEAD").status == 200
    if FORMS[path] == JSON:
        assert list(reply.json) == ["amps"]


REFUSED: Final = {
    "/nowhere": (404, "/amps"),
    "/amps/instnce": (404, "instance"),
    "/amps/instance/transports/any-tpc": (404, "any-tcp"),
    "/amps/instance/clients/999999": (404, "/amps/instance/clients"),
    "/amps/instance.csv": (404, ".json"),
    "/amps/instance.rnc": (404, ".json"),
    "/amps/instance/timestamp.rnc": (404, "json"),
    "/amps/../etc/passwd": (404, ".."),
    "/amps/%2e%2e/%2e%2e": (404, ".."),
    "/amps/%ff": (400, "UTF-8"),
    "/amps/instance/pid?t0=yesterday": (400, "YYYYMMDDThhmmss"),
    "/amps/instance/pid?t0=20231301": (400, "YYYYMMDDThhmmss"),
    "/amps/instance/pid?t0=": (400, "YYYYMMDDThhmmss"),
    "/amps/instance/pid?t0=20240101&t1=20230101": (400, "later"),
    "/amps/instance?t0=20240101": (400, "t0 and t1"),
    "/amps/instance/memory/rss?t0=20240101&points=0": (400, "1 to 1000"),
    "/amps/instance/memory/rss?t0=20240101&points=1001": (400, "1 to 1000"),
    "/amps/instance/memory/rss?t0=20240101&points=many": (400, "1 to 1000"),
    "/amps/instance/name?t0=20240101&points=10": (400, "no averages"),
    "/amps/instance?t0=20240101&t1=20240101": (404, "/amps/instance/timestamp"),
    "/amps/instance/clients/77/bytes_in?t0=20240101": (404, "There are no samples"),
    "/amps/instance/queues/nowhere/details": (404, "/amps/instance/queues"),
}


@pytest.mark.parametrize("path", REFUSED)
def test_what_is_refused_says_what_was_expected(admin: Admin, path: str) -> None:
    status, expected = REFUSED[path]
    reply = admin.ask(path)
    assert (reply.status, reply.headers["content-type"]) == (status, "text/plain; charset=utf-8")
    assert expected in reply.text
    assert reply.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "BREW"])
def test_other_methods_are_not_allowed(admin: Admin, method: str) -> None:
    reply = admin.ask("/amps", method)
    assert reply.status == 405
    assert reply.headers["allow"] == "GET, HEAD, OPTIONS"
    assert admin.ask("/amps", "OPTIONS").status == 204


def test_answers_have_the_headers_of_the_configuration_and_protect_browsers(admin: Admin) -> None:
    for path in ("/", "/amps", "/amps.json", "/nowhere"):
        headers = admin.ask(path).headers
        assert headers["x-special"] == "a, b"
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["access-control-allow-origin"] == f"http://127.0.0.1:{admin.port}"


def test_the_style_of_pages_is_what_the_policy_allows(admin: Admin) -> None:
    reply = admin.ask("/amps")
    (style,) = re.findall("<style>(.*?)</style>", reply.text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"'sha256-{digest}'" in reply.headers["content-security-policy"]
    assert "<script" not in reply.text


def test_the_first_page_says_that_there_are_no_queries(admin: Admin) -> None:
    reply = admin.ask("/")
    assert reply.status == 200
    assert "__sql=false" in reply.text


def test_without_the_console_the_first_page_describes_the_instance(tmp_path: Path) -> None:
    described = "<Description>A &lt;test&gt;</Description>"
    with running_admin(tmp_path, "<Galvanometer>disabled</Galvanometer>", described) as plain:
        reply = plain.ask("/")
    assert reply.status == 200
    assert "__sql=false" in reply.text
    assert "A &lt;test&gt;" in reply.text


def test_a_document_is_not_sent_again_before_the_next_sample(admin: Admin) -> None:
    etag = admin.ask("/amps/instance/name.json").headers["etag"]
    assert admin.ask("/amps/instance/name.json", If_None_Match=etag).status == 304
    config = admin.ask("/amps/instance/config.xml")
    modified = config.headers["last-modified"]
    assert admin.ask("/amps/instance/config.xml", If_Modified_Since=modified).status == 304


def test_passwords_of_the_configuration_are_not_shown(admin: Admin) -> None:
    text = admin.ask("/amps/instance/config.xml").text
    assert SECRET not in text
    assert "<Password>********</Password>" in text


def test_the_uptime_has_its_form(admin: Admin) -> None:
    uptime = admin.ask("/amps/instance/uptime").text
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{6}", re.sub("<[^>]*>", "", uptime))


def test_samples_are_told_by_their_moments(admin: Admin) -> None:
    listed = moments(admin)
    assert all(MOMENT.fullmatch(one) for one in listed)
    assert listed == sorted(listed)
    found = admin.ask("/amps/instance/timestamp.json").json["amps"]["instance"]["timestamp"]
    assert found[: len(listed)] == listed
    assert f"<timestamp>{listed[0]}</timestamp>" in admin.ask("/amps/instance/timestamp.xml").text
    limited = admin.ask(f"/amps/instance/timestamp.csv?t0={listed[1]}&t1={listed[2]}").text
    assert limited.split() == listed[1:3]


def test_ranges_include_both_ends(admin: Admin) -> None:
    listed = moments(admin)
    path = "/amps/instance/statistics/total_samples"

    def told(query: str, form: str = "") -> list[str]:
        lines = admin.ask(f"{path}{form}?{query}").text.splitlines()
        return [line.partition(",")[0] for line in lines]

    assert told(f"t0={listed[1]}&t1={listed[2]}") == listed[1:3]
    assert told(f"t0={listed[0]}")[: len(listed)] == listed
    assert told(f"t1={listed[1]}") == listed[:2]
    assert told("t0=20990101") == []
    just_after = to_text(from_text(listed[0]) + 1)
    assert told(f"t0={just_after}&t1={listed[1]}", ".csv") == listed[1:2]
    values = admin.ask(f"{path}.json?t1={listed[1]}").json["amps"]["instance"]["statistics"]
    assert [one["timestamp"] for one in values["total_samples"]] == listed[:2]
    assert int(values["total_samples"][1]["value"]) == int(values["total_samples"][0]["value"]) + 1
    xml = admin.ask(f"{path}.xml?t1={listed[0]}").text
    assert re.sub(r"\s", "", xml).startswith(
        f"<amps><instance><statistics><total_samples><sampletimestamp='{listed[0]}'>"
    )


def test_an_exact_moment_shows_everything_as_it_was(admin: Admin) -> None:
    first, second = moments(admin)[:2]
    early = admin.tree(f"/amps/instance.json?t0={first}&t1={first}")["amps"]["instance"]
    later = admin.tree(f"/amps/instance.json?t0={second}&t1={second}")["amps"]["instance"]
    assert (early["timestamp"], later["timestamp"]) == (first, second)
    assert early["uptime"] < later["uptime"]
    one = admin.ask(f"/amps/instance/uptime?t0={first}&t1={first}")
    assert re.sub("<[^>]*>", "", one.text) == early["uptime"]
    row = admin.ask(f"/amps/instance/uptime.csv?t0={first}&t1={first}").text
    assert row == f"{first},{early['uptime']}\n"


def test_points_bound_a_range_of_a_value(admin: Admin) -> None:
    first = admin.tree("/amps/instance/timestamp.json")["amps"]["instance"]["timestamp"][0]
    path = "/amps/instance/memory/rss.csv"
    wait_until(lambda: admin.ask(f"{path}?t0={first}").text.count("\n") > 3)
    rows = admin.ask(f"{path}?t0={first}&points=2").text.splitlines()
    assert 1 <= len(rows) <= 2
    assert all(row.partition(",")[2].isdigit() for row in rows)
    assert admin.ask(f"{path}?t0=20990101&t1=20990102&points=5").text == ""
    assert admin.ask(f"{path}?points=1000").text.count("\n") > 1, "it begins with the samples"


def test_who_has_gone_is_still_known_over_time(admin: Admin) -> None:
    with admin.server.log_on("brief"):
        wait_until(lambda: client_of(admin, "brief") is not None)
        identity = client_of(admin, "brief")
    wait_until(lambda: client_of(admin, "brief") is None)
    assert admin.ask(f"/amps/instance/clients/{identity}").status == 404
    assert (
        ",brief\n" in admin.ask(f"/amps/instance/clients/{identity}/client_name?t0=20200101").text
    )


def client_of(admin: Admin, name: str) -> str | None:
    """The id of a client in the last sample; None if it is not there."""
    clients = admin.tree("/amps/instance/clients.json")["amps"]["instance"]["clients"]
    return next((one["id"] for one in clients if one["client_name"] == name), None)


def events(connection: socket.socket) -> Iterator[tuple[str, dict[str, Any]]]:
    """The events that come on a connection, until it ends."""
    with connection.makefile("rb") as lines:
        while lines.readline().strip():
            pass  # the head of the answer
        name = ""
        for line in lines:
            field, _, value = line.decode().rstrip("\n").partition(": ")
            if field == "event":
                name = value
            elif field == "data":
                yield name, json.loads(value)


def watch(admin: Admin, path: str, parts: str = "") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", admin.port), WAIT_SECONDS)
    connection.sendall(
        f"GET {path}?watch={parts} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode()
    )
    return connection


def test_whoever_watches_is_told_what_changes_until_the_object_goes(admin: Admin) -> None:
    with admin.server.log_on("watched") as peer:
        wait_until(lambda: client_of(admin, "watched") is not None)
        identity = client_of(admin, "watched")
        path = f"/amps/instance/clients/{identity}"
        with watch(admin, path) as connection:
            coming = events(connection)
            kind, found = next(coming)
            assert kind == "node"
            assert '"watched"' in json.dumps(found)
            peer.send({"c": "publish", "t": "some"}, b"{}")
            kind, found = next(coming)
            while kind == "change" and f"{path}/messages_in" not in str(found["changed"]):
                kind, found = next(coming)
            assert f"{path}/client_name" not in str(found["changed"])
            peer.socket.close()
            assert list(coming)[-1] == ("gone", {})


def test_whoever_watches_many_is_told_who_comes_and_goes(admin: Admin) -> None:
    with watch(admin, "/amps/instance/clients") as connection:
        coming = events(connection)
        assert next(coming)[0] == "node"
        with admin.server.log_on("passing"):
            for _, found in coming:
                changed = found["changed"]
                if "passing" in changed.values():
                    break
        identity = next(path for path, value in changed.items() if value == "passing")
        path = identity.rpartition("/")[0]
        for _, found in coming:
            if path in found["gone"]:
                break


def test_whoever_watches_parts_is_told_of_these(admin: Admin) -> None:
    parts = "host/memory,instance/memory/caches,instance/processors"
    with watch(admin, "/amps", parts) as connection:
        coming = events(connection)
        _, found = next(coming)
        host, instance = found["amps"]["host"], found["amps"]["instance"]
        assert [name for name, one in host.items() if isinstance(one, dict | list)] == ["memory"]
        below = {name for name, one in instance.items() if isinstance(one, dict | list)}
        assert below == {"memory", "processors"}
        assert set(instance["memory"]) == {"rss", "vmsize", "caches"}
        with admin.server.log_on("unseen"):
            wait_until(lambda: client_of(admin, "unseen") is not None)
            _, change = next(coming)
        assert not [path for path in change["changed"] if path.startswith("/amps/instance/clients")]
        assert "/amps/instance/uptime" in change["changed"]


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/amps/instance?watch=procesors", "did you mean processors"),
        ("/amps/instance?watch=processors,", "There is no '' to watch"),
        ("/amps/instance/clients/1?watch=2", "There is no"),
        ("/amps?watch=../amps", "There is no '../amps' to watch in /amps"),
    ],
)
def test_parts_that_are_not_there_cannot_be_watched(admin: Admin, path: str, meant: str) -> None:
    with admin.server.log_on("first"):
        wait_until(lambda: client_of(admin, "first") is not None)
        reply = admin.ask(path.replace("clients/1", f"clients/{client_of(admin, 'first')}"))
    assert reply.status == 400
    assert meant in reply.text


def test_how_long_things_take_is_known_of_each_interval(admin: Admin) -> None:
    def turn() -> dict[str, str]:
        tree = admin.tree("/amps/instance/latencies/turn.json")
        found: dict[str, str] = tree["amps"]["instance"]["latencies"][0]
        return found

    names = ("mean", "percentile_99", "count", "total")
    wait_until(lambda: all(float(turn()[name]) > 0 for name in names))


def test_watchers_that_vanish_between_two_samples_are_let_go_in_silence(tmp_path: Path) -> None:
    with running_admin(tmp_path) as admin:
        for _ in range(5):
            connection = watch(admin, "/amps")
            assert connection.recv(1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()  # resets it
        seen = len(moments(admin))
        wait_until(lambda: len(moments(admin)) >= seen + 3)
        assert " error: " not in admin.server.log()


def test_a_port_that_is_taken_ends_the_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        section = f"<Admin><InetAddr>127.0.0.1:{port}</InetAddr></Admin>"
        said = why_no_start(tmp_path, section)
    assert re.search(
        rf"config.xml:\d+: the admin interface cannot listen on 127.0.0.1:{port}: ", said
    )


def test_without_an_address_nothing_listens(tmp_path: Path) -> None:
    with running_server(tmp_path, elements="<Admin><Interval>1s</Interval></Admin>") as server:
        assert server.logs("initialization completed")
        assert "19-0001" not in server.log()


@needs_ipv6
@pytest.mark.parametrize(
    ("address", "hosts", "not_hosts"),
    [
        ("", ["127.0.0.1", "::1"], []),
        ("[::]:", ["::1"], ["127.0.0.1"]),
        ("0.0.0.0:", ["127.0.0.1"], ["::1"]),
    ],
)
def test_it_listens_where_it_is_told(
    tmp_path: Path, address: str, hosts: list[str], not_hosts: list[str]
) -> None:
    with running_admin(tmp_path, address=address) as admin:
        for host in hosts:
            assert ask(admin.port, "/", host=host).status == 200
        for host in not_hosts:
            with pytest.raises(ConnectionRefusedError):
                ask(admin.port, "/", host=host)
        assert admin.server.logs(f"http://localhost:{admin.port}/amps")


def test_a_hundred_scrapers_do_not_keep_messages(admin: Admin) -> None:
    """What is published while they ask again and again arrives, all of it."""
    connections = [socket.create_connection(("127.0.0.1", admin.port)) for _ in range(100)]
    request = b"GET /amps.json HTTP/1.1\r\nHost: a\r\n\r\n" * 20
    with admin.server.log_on("subscriber") as subscriber, admin.server.log_on("source") as source:
        subscriber.send(
            {"c": "subscribe", "cid": "1", "t": "flow", "sub_id": "s", "a": "processed"}
        )
        assert subscriber.receive()[0]["status"] == "success"
        for number in range(1_000):
            if number % 10 == 0:
                connections[number // 10].sendall(request)
            source.send({"c": "publish", "t": "flow"}, str(number).encode())
        for number in range(1_000):
            assert subscriber.receive()[1] == str(number).encode()
    for connection in connections:
        connection.settimeout(WAIT_SECONDS)
        assert connection.recv(15) == b"HTTP/1.1 200 OK"
        connection.close()
    assert admin.ask("/").status == 200


def test_the_certificate_is_read_again_when_it_changes(tmp_path: Path) -> None:
    trustme = pytest.importorskip("trustme")
    port = free_port()
    first, second = trustme.CA(), trustme.CA()

    def issue(authority: Any) -> None:
        issued = authority.issue_cert("localhost")
        issued.private_key_pem.write_to_path(tmp_path / "key.pem")
        issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")

    def is_trusted(authority: Any) -> bool:
        context = ssl.create_default_context()
        authority.configure_trust(context)
        try:
            with (
                socket.create_connection(("127.0.0.1", port), WAIT_SECONDS) as plain,
                context.wrap_socket(plain, server_hostname="localhost") as secured,
            ):
                secured.sendall(b"GET / HTTP/1.0\r\n\r\n")
                return secured.recv(15) == b"HTTP/1.1 200 OK"
        except ssl.SSLCertVerificationError:
            return False

    issue(first)
    section = f"""<Admin><InetAddr>127.0.0.1:{port}</InetAddr>
      <Certificate>cert.pem</Certificate><PrivateKey>key.pem</PrivateKey></Admin>"""
    with running_server(tmp_path, elements=section) as server:
        assert is_trusted(first)
        assert not is_trusted(second)
        with socket.create_connection(("127.0.0.1", port), WAIT_SECONDS) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert b"200 OK" not in plain.recv(1 << 16)
        assert server.logs("19-0005")
        issue(second)
        assert server.logs("19-0003")
        assert is_trusted(second)
        (tmp_path / "cert.pem").write_text("no certificate")
        assert server.logs("19-0004")
        assert is_trusted(second), "what there was stays in force"
        assert "01-0004" not in server.log()


def test_a_certificate_that_is_not_there_ends_the_start(tmp_path: Path) -> None:
    section = """<Admin><InetAddr>127.0.0.1:0</InetAddr>
      <Certificate>cert.pem</Certificate><PrivateKey>key.pem</PrivateKey></Admin>"""
    said = why_no_start(tmp_path, section)
    assert re.search(r"config.xml:\d+: the admin interface cannot be secured: .*cert.pem", said)


def test_whatever_is_under_way_does_not_hold_up_the_end(tmp_path: Path) -> None:
    with running_admin(tmp_path) as admin:
        silent = socket.create_connection(("127.0.0.1", admin.port), WAIT_SECONDS)
        half = socket.create_connection(("127.0.0.1", admin.port), WAIT_SECONDS)
        half.sendall(b"GET / HTTP/1.1\r\nHo")
        slow = socket.create_connection(("127.0.0.1", admin.port), WAIT_SECONDS)
        slow.sendall(b"GET /amps.xml HTTP/1.1\r\nHost: a\r\n\r\n" * 500)
        watching = watch(admin, "/amps")
        assert next(events(watching))[0] == "node"
        assert admin.server.stop() == 0
        for connection in (silent, half, slow, watching):
            connection.close()
        log = admin.server.log()
        assert "19-0002" in log
        assert " error: " not in log
