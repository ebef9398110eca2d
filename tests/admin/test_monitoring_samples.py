"""The files for Prometheus and Grafana: they fit together, and to what a server shows."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest
from prometheus_client.parser import text_string_to_metric_families as read_text

from tests.admin.support import Admin, running_admin
from tests.admin.test_health import DESTINATION
from tests.admin.test_programs import ELEMENTS
from tests.support.server import free_port
from tests.support.waiting import WAIT_SECONDS, wait_until

_FILES: Final = Path(__file__).parents[2] / "sample_configs" / "monitoring"
_NAME: Final = re.compile(r"\b(?:amperage|process)_\w+")


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    destination = DESTINATION.format(name="far", sync="async", port=free_port()).replace(
        "orders", "jobs"
    )
    with running_admin(
        tmp_path_factory.mktemp("samples"),
        elements=f"{ELEMENTS}<Replication>{destination}</Replication>",
    ) as running:
        yield running


def _dashboard() -> Any:
    return json.loads((_FILES / "dashboard.json").read_text())


def _rules() -> list[str]:
    return re.findall(r"expr: (.*)", (_FILES / "alerts.yml").read_text())


def _queries() -> list[str]:
    panels = [panel for panel in _dashboard()["panels"] if panel["type"] != "row"]
    variables = [
        one["definition"] for one in _dashboard()["templating"]["list"] if "definition" in one
    ]
    return [target["expr"] for panel in panels for target in panel["targets"]] + variables


def test_every_metric_that_they_use_is_there(admin: Admin) -> None:
    names = {
        sample.name for family in read_text(admin.ask("/metrics").text) for sample in family.samples
    }
    used = {name for text in _rules() + _queries() for name in _NAME.findall(text)}
    assert len(used) > 30
    assert not used - names


def test_the_dashboard_can_be_imported_anywhere() -> None:
    dashboard = _dashboard()
    assert dashboard["id"] is None
    variables = {one["name"]: one for one in dashboard["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        for part in (panel, *panel.get("targets", [])):
            if "expr" in part or "targets" in part:
                assert part["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    taken = [
        (place["x"] + x, place["y"] + y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["w"])
        for y in range(place["h"])
    ]
    assert len(taken) == len(set(taken))


@pytest.fixture
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool (Debian: prometheus) is not installed")
    return found


def _run(*command: str | Path, told: bytes = b"") -> None:
    done = subprocess.run(
        command, check=False, input=told, capture_output=True, timeout=WAIT_SECONDS
    )
    assert (done.returncode, done.stderr) == (0, b""), done.stdout + done.stderr


def test_promtool_accepts_them(promtool: str, admin: Admin) -> None:
    _run(promtool, "check", "config", _FILES / "prometheus.yml")
    _run(promtool, "check", "rules", _FILES / "alerts.yml")
    for path in ("/metrics", "/metrics/detailed?family=topics"):
        _run(promtool, "check", "metrics", told=admin.ask(path).body)


def test_a_real_prometheus_scrapes_it(tmp_path: Path, admin: Admin) -> None:
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("prometheus is not installed")
    text = (_FILES / "prometheus.yml").read_text()
    text = text.replace("localhost:8085", f"127.0.0.1:{admin.port}").replace(": 10s", ": 1s")
    (tmp_path / "prometheus.yml").write_text(text)
    shutil.copy(_FILES / "alerts.yml", tmp_path)
    port = free_port()
    command = [
        program,
        f"--config.file={tmp_path / 'prometheus.yml'}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (tmp_path / "said").open("wb") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said)
    try:
        wait_until(lambda: _asked(port, "amperage_transport_enabled") == ["1"])
        wait_until(lambda: _asked(port, "amperage_replication_connected") == ["0"])
        assert _asked(port, 'up{job="amperage"}') == ["1"]
        for expression in _rules() + _queries():
            usable = expression.replace("$__rate_interval", "1m").replace("$job", ".*")
            if not usable.startswith("label_values"):
                _asked(port, usable.replace("$instance", ".*"))
    finally:
        process.kill()
        process.wait()


def _asked(port: int, expression: str) -> list[str]:
    """The values of an expression; none as long as Prometheus does not answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_SECONDS)
    try:
        connection.request("GET", f"/api/v1/query?query={quote(expression)}")
        response = connection.getresponse()
        body = response.read()
    except ConnectionError:
        return []
    finally:
        connection.close()
    if response.status == 503:
        return []
    answer = json.loads(body)
    assert answer["status"] == "success", (expression, answer)
    return [one["value"][1] for one in answer["data"]["result"]]
