"""The sample of the web service module, with its service, runs as its comment says."""

from __future__ import annotations

import base64
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.admin.support import ask
from tests.support.server import ROOT, free_port, running_configuration
from tests.support.waiting import wait_until

SAMPLES = ROOT / "sample_configs"


@contextmanager
def sample_service(port: int) -> Iterator[None]:
    """The service that comes with the sample."""
    command = [sys.executable, str(SAMPLES / "permission_service.py"), str(port)]
    service = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: _answers(port))
        yield
    finally:
        service.kill()
        service.wait()


def _answers(port: int) -> bool:
    try:
        return ask(port, "/ann.json").status == 401
    except OSError:
        return False


def test_the_sample(tmp_path: Path) -> None:
    ports = {8080: free_port(), 8085: free_port(), 9007: free_port()}
    text = (SAMPLES / "web_permissions.xml").read_text()
    for known, port in ports.items():
        text = text.replace(f":{known}", f":{port}").replace(f">{known}<", f">{port}<")
    with (
        sample_service(ports[8080]),
        running_configuration(tmp_path, text, ports[9007]) as server,
        server.connect() as ann,
        server.connect() as oscar,
    ):
        assert ann.log_on("a", user_id="ann", pw="wonderland")["status"] == "success"
        assert oscar.log_on("o", user_id="oscar", pw="trash")["status"] == "success"
        assert ann.subscribe("news", "1")["reason"] == "not entitled"
        assert ann.subscribe("prices/", "2")["status"] == "success"
        oscar.publish("prices/", b'{"region":"US","price":1,"cost":2}')
        oscar.publish("prices/", b'{"region":"EU","price":3,"cost":4}')
        assert ann.receive()[1] == b'{"region":"EU","price":3}'
        ack = ann.ask({"c": "publish", "cid": "3", "t": "prices/", "a": "processed"}, b"{}")
        assert ack["reason"] == "not entitled"
        with server.connect() as other:
            assert other.log_on("x", user_id="ann", pw="guess")["reason"] == "auth failure"
        path = "/amps/instance/name"
        for user, status in (("oscar:trash", 200), ("ann:wonderland", 403), ("ann:guess", 401)):
            shown = "Basic " + base64.b64encode(user.encode()).decode()
            assert ask(ports[8085], path, authorization=shown).status == status
