"""`amperage.testing`: temporary servers, and their fixtures in a run of pytest."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from amperage.testing import ServerStartError, TemporaryServer, run_server
from tests.support.server import environment
from tests.support.waiting import WAIT_SECONDS

pytestmark = pytest.mark.process  # the product starts them

CONFIGURATION = """
<AMPSConfig>
  <Name>mine</Name>
  <Admin><InetAddr>localhost:8085</InetAddr></Admin>
  <SOW>
    <Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
      <FileName>./%n.sow</FileName></Topic>
  </SOW>
  <Transports>
    <Transport><Name>any</Name><Type>tcp</Type><InetAddr>9007</InetAddr>
      <Protocol>amps</Protocol></Transport>
    <Transport><Name>nvfix</Name><Type>tcp</Type><InetAddr>9008</InetAddr>
      <MessageType>nvfix</MessageType><Protocol>amps</Protocol></Transport>
    <Transport><Name>web</Name><Type>tcp</Type><InetAddr>9009</InetAddr>
      <Protocol>websocket</Protocol></Transport>
  </Transports>
</AMPSConfig>
"""


def test_a_server_has_ports_and_files_of_its_own(tmp_path: Path) -> None:
    with run_server(CONFIGURATION, directory=tmp_path) as server:
        assert list(server.urls) == list(server.ports) == ["any", "nvfix", "web"]
        assert len({*server.ports.values()}) == 3
        assert not {9007, 9008, 9009} & {*server.ports.values()}
        assert server.url == server.urls["any"]
        with server.connect() as client, server.connect(server.urls["web"]) as browser:
            client.publish("orders", '{"id": 1}')
            client.flush()
            assert [record.body for record in browser.sow("orders")] == [b'{"id": 1}']
        with server.connect(server.urls["nvfix"], name="of-nvfix") as client:
            client.publish("t", b"a=1\1")
            client.flush()
        assert "of-nvfix" in server.log()
        assert server.admin_url is not None
        with urllib.request.urlopen(f"{server.admin_url}/readyz") as answer:
            assert answer.status == 200
        server.stop()
        assert not server.is_running
        assert [*tmp_path.glob("*.sow")]
        server.start()
        with server.connect() as client:
            assert len(list(client.sow("orders"))) == 1


def test_two_servers_run_side_by_side_and_leave_nothing() -> None:
    with run_server() as one, run_server() as other:
        assert one.url != other.url
        directories = [one.directory, other.directory]
        assert all(directory.is_dir() for directory in directories)
        assert repr(one) == f"<TemporaryServer {one.url}: running>"
    assert not any(directory.exists() for directory in directories)
    assert not one.is_running


def test_files_that_a_configuration_includes_are_found(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "server").mkdir()
    (tmp_path / "parts" / "tcp.xml").write_text(
        "<Transport><Name>included</Name><Type>tcp</Type><InetAddr>9007</InetAddr>"
        "<Protocol>amps</Protocol></Transport>"
    )
    file = tmp_path / "config.xml"
    file.write_text(
        "<AMPSConfig><Name>n</Name><Transports><Include>parts/tcp.xml</Include></Transports>"
        "</AMPSConfig>"
    )
    with run_server(file, directory=tmp_path / "server") as server:
        assert list(server.urls) == ["included"]


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    wrong = CONFIGURATION.replace("<Key>/id</Key>", "<Kee>/id</Kee>")
    with pytest.raises(ServerStartError, match="Kee"):
        TemporaryServer(wrong, directory=tmp_path).start()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<AMPSConfig>", "configuration: .*line 1"),
        ("<AMPSConfig><Name>n</Name></AMPSConfig>", "expected a Transport for clients"),
    ],
)
def test_a_configuration_without_a_transport_is_refused(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        TemporaryServer(text, directory=tmp_path)


TESTS = """
import amperage

def test_this_passes(amperage_server):
    with amperage.connect(amperage_server.url, name="passed") as client:
        client.flush()

def test_this_fails(amperage_server):
    with amperage_server.connect(name="failed") as client:
        client.flush()
        assert client.name == "another"
"""


def test_a_failed_test_shows_the_log_of_its_server(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["amperage.testing.plugin"]\n')
    (tmp_path / "test_it.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    _, _, log = done.stdout.partition("Log of amperage_server")
    log = log.partition("short test summary")[0]
    assert "failed" in log, "the name of its client"
    assert "passed" not in log
