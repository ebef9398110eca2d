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

from tests.admin.support import Admin, running_admin, tls_transport
from tests.admin.test_health import DESTINATION
from tests.admin.test_programs import ELEMENTS
from tests.support.server import free_port
from tests.support.waiting import WAIT_SECONDS, wait_until
from tests.transports.support import Authority

_FILES: Final = Path(__file__).parents[2] / "sample_configs" / "monitoring"
_NAME: Final = re.compile(r"\b(?:amperage|process)_\w+")


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    destination = DESTINATION.format(name="far", sync="async", port=free_port()).replace(
        "orders", "jobs"
    )
    directory = tmp_path_factory.mktemp("samples")
    with running_admin(
        directory,
        elements=f"{ELEMENTS}<Replication>{destination}</Replication>",
        transports=tls_transport(Authority(directory, "servers")),
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


_UNITS: Final = {"s", "Bps", "mps", "short", "ops", "percentunit", "cps", "iops", "bytes"}
"""Names of Grafana's that are used (its format registry has all)."""

_PANEL: Final[dict[str, type]] = {
    "id": int,
    "type": str,
    "title": str,
    "gridPos": dict,
}
_QUERIES: Final[dict[str, type]] = {
    "datasource": dict,
    "targets": list,
    "fieldConfig": dict,
    "options": dict,
}
_OPTIONS: Final[dict[str, dict[str, set[str]]]] = {
    "timeseries": {"legend": {"displayMode", "placement"}, "tooltip": {"mode"}},
    "stat": {
        "reduceOptions": {"calcs", "fields", "values"},
        "colorMode": set(),
        "graphMode": set(),
    },
}
_MODEL: Final[dict[str, type]] = {
    "uid": str,
    "title": str,
    "tags": list,
    "timezone": str,
    "editable": bool,
    "graphTooltip": int,
    "time": dict,
    "refresh": str,
    "schemaVersion": int,
    "version": int,
    "templating": dict,
    "annotations": dict,
    "panels": list,
}
"""What Grafana's JSON model of a dashboard, of a panel and of one with queries must have."""


def _fits(model: dict[str, type], given: dict[str, Any]) -> None:
    for name, kind in model.items():
        assert type(given.get(name)) is kind, f"{name} of {given.get('title')}"


def test_the_dashboard_fits_the_model_of_grafana() -> None:
    dashboard = _dashboard()
    _fits(_MODEL, dashboard)
    assert 36 <= dashboard["schemaVersion"] <= 41, "Grafana brings older ones up to date"
    assert len(dashboard["uid"]) <= 40
    assert set(dashboard["time"]) == {"from", "to"}
    assert isinstance(dashboard["annotations"]["list"], list)
    names = [one["name"] for one in dashboard["templating"]["list"]]
    assert names == ["datasource", "job", "instance"], "one may depend on those before it"
    for one in dashboard["templating"]["list"][1:]:
        assert (one["type"], one["query"]["query"]) == ("query", one["definition"])
        assert one["refresh"] == 2, "when the time range changes"
    for panel in dashboard["panels"]:
        _fits(_PANEL, panel)
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        assert place["h"] > 0
        if panel["type"] == "row":
            assert (panel["collapsed"], panel["panels"]) == (False, [])
            continue
        _fits(_QUERIES, panel)
        assert panel["fieldConfig"]["defaults"]["unit"] in _UNITS
        assert panel["fieldConfig"]["overrides"] == []
        options = _OPTIONS[panel["type"]]
        assert set(panel["options"]) == set(options)
        assert all(set(panel["options"][one]) >= set(its) for one, its in options.items() if its)
        refs = [target["refId"] for target in panel["targets"]]
        assert len(set(refs)) == len(refs) > 0
        for target in panel["targets"]:
            used = set(re.findall(r"\$(\w+|{\w+})", target["expr"]))
            assert used <= {"job", "instance", "__rate_interval"}
            assert {"job", "instance"} <= used, "a panel is about what has been chosen"


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
        for expression in _rules():
            _asked(port, expression)
        wait_until(lambda: _found(port, "rate(amperage_statistics_samples_total[1m])") != [])
        _look_at_panels(port)
    finally:
        process.kill()
        process.wait()


def _look_at_panels(port: int) -> None:
    """Ask what the dashboard asks: legends name labels that the answers have."""
    answered = 0
    for panel in _dashboard()["panels"]:
        for target in panel.get("targets", ()):
            found = _found(port, _chosen(target["expr"]))
            answered += bool(found)
            for name in re.findall(r"{{(\w+)}}", target["legendFormat"]):
                assert all(name in one["metric"] for one in found), (panel["title"], name)
    assert answered > 30
    for one in _dashboard()["templating"]["list"][1:]:
        inner = re.fullmatch(r"label_values\((.*), (\w+)\)", one["definition"])
        assert inner is not None
        found = _found(port, _chosen(inner[1]))
        assert found
        assert all(inner[2] in series["metric"] for series in found)


def _chosen(expression: str) -> str:
    """An expression as Grafana asks it, with everything chosen."""
    for name, value in (("__rate_interval", "1m"), ("job", ".*"), ("instance", ".*")):
        expression = expression.replace(f"${name}", value)
    return expression


def _asked(port: int, expression: str) -> list[str]:
    """The values of an expression; none as long as Prometheus does not answer."""
    return [one["value"][1] for one in _found(port, expression)]


def _found(port: int, expression: str) -> list[Any]:
    """The series that an expression gives; none as long as Prometheus does not answer."""
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
    found: list[Any] = answer["data"]["result"]
    return found
