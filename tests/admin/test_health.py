"""/healthz and /readyz, as an orchestrator asks for them."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast

import pytest

from server.admin.access import Requester
from server.admin.engine_calls import EngineCalls
from server.admin.health import Health
from server.admin.http.messages import HttpDocument, HttpRequest
from server.replication.links.lag_monitor import LAG_WARNING_SECONDS
from server.statistics.statistics_thread import StatisticsThread
from tests.admin.support import Admin, running_admin
from tests.engine.support import RecordingLog
from tests.support.server import CONFIGURATION, free_port, running_configuration
from tests.support.waiting import wait_until

_LOG: Final = """
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""
DESTINATION: Final = """
<Destination>
  <Name>{name}</Name><Group>{name}</Group><SyncType>{sync}</SyncType>
  <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
  <Transport><Type>amps-replication</Type><InetAddr>127.0.0.1:{port}</InetAddr></Transport>
</Destination>
"""
_SECOND: Final = """
<Transport>
  <Name>second</Name><Type>tcp</Type><InetAddr>127.0.0.1:{port}</InetAddr>
  <Protocol>amps</Protocol><MessageType>json</MessageType>
</Transport>
"""
_DISABLING: Final = """
<Actions><Action>
  <On><Module>amps-action-on-publish-message</Module>
    <Options><MessageType>json</MessageType><Topic>disable</Topic></Options></On>
  <Do><Module>amps-action-do-disable-transport</Module>
    <Options><Transport>second</Transport></Options></Do>
</Action></Actions>
"""


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    destinations = "".join(
        DESTINATION.format(name=name, sync=sync, port=free_port())
        for name, sync in (("near", "sync"), ("far", "async"))
    )
    with running_admin(
        tmp_path_factory.mktemp("health"),
        elements=f"{_LOG}<Replication>{destinations}</Replication>",
    ) as running:
        yield running


def test_an_instance_that_works_is_alive_and_ready(tmp_path: Path) -> None:
    with running_admin(
        tmp_path, elements=_DISABLING, transports=_SECOND.format(port=free_port())
    ) as admin:
        for path in ("/healthz", "/readyz", "/readyz?replication=all"):
            reply = admin.ask(path)
            assert (reply.status, reply.text) == (200, "ok\n"), reply.text
            assert reply.headers["cache-control"] == "no-store"
        assert _checks(admin, "/healthz.json") == {"engine": "ok", "statistics": "ok"}
        ready = {"transport any-tcp": "ok", "transport second": "ok"}
        assert _checks(admin, "/readyz.json") == {"engine": "ok", "statistics": "ok", **ready}
        with admin.server.log_on() as peer:
            peer.publish("disable", b"{}")
        wait_until(lambda: admin.ask("/readyz").status == 503)
        assert admin.ask("/readyz").text == "transport second: it is disabled\n"
        assert admin.ask("/healthz").status == 200


def _checks(admin: Admin, path: str) -> dict[str, str]:
    return {one["name"]: one["status"] for one in admin.ask(path).json["checks"]}


def test_sync_destinations_have_to_be_there(admin: Admin) -> None:
    reply = admin.ask("/readyz")
    assert reply.status == 503
    trouble = "it has never been connected since this instance started"
    assert reply.text == f"destination near: {trouble}\n"
    everything = admin.ask("/readyz.json?replication=all")
    assert everything.status == 503
    assert everything.json["status"] == "unavailable"
    found = {one["name"]: one["status"] for one in everything.json["checks"]}
    assert (found["destination near"], found["destination far"]) == (trouble, trouble)
    assert admin.ask("/healthz").status == 200


def test_a_destination_that_is_waited_for_since_a_moment_ago_is_well(tmp_path: Path) -> None:
    link, port = free_port(), free_port()
    incoming = (
        "<Transport><Name>in</Name><Type>amps-replication</Type>"
        f"<InetAddr>127.0.0.1:{link}</InetAddr></Transport>"
    )
    other = CONFIGURATION.format(port=port, transports=incoming, elements=_LOG, level="info")
    (tmp_path / "near").mkdir()
    destination = DESTINATION.format(name="near", sync="sync", port=link).replace(
        "</Topic>", "<ExcludeValidation>replicate</ExcludeValidation></Topic>"
    )
    given = f"{_LOG}<Replication>{destination}</Replication>"
    with (
        running_configuration(
            tmp_path / "near", other.replace("test-instance", "near"), port
        ) as near,
        running_admin(tmp_path, elements=given) as admin,
        admin.server.log_on() as peer,
    ):
        wait_until(lambda: admin.ask("/readyz").status == 200)
        near.process.send_signal(signal.SIGSTOP)
        try:
            begun = time.time()
            peer.publish("orders", b"{}", s=1)
            peer.flush()
            texts: list[str] = []

            def is_late() -> bool:
                reply = admin.ask("/readyz")
                texts.append(reply.text)
                return reply.status == 503

            wait_until(is_late)
            assert time.time() - begun > LAG_WARNING_SECONDS / 2, texts[-1]
            since = texts[-1].rpartition("since ")[2].strip()
            moment = datetime.strptime(since, "%Y%m%dT%H%M%S.%fZ").replace(tzinfo=UTC)
            assert abs(moment.timestamp() - begun) < LAG_WARNING_SECONDS, since
        finally:
            near.process.send_signal(signal.SIGCONT)
        wait_until(lambda: admin.ask("/readyz").status == 200)


def test_what_is_asked_for_in_another_way_is_refused(admin: Admin) -> None:
    reply = admin.ask("/readyz?replication=some")
    assert reply.status == 400
    assert "expected sync or all" in reply.text


class _Open:
    """Lets everybody see everything."""

    async def require_access(self, _visitor: Requester, _path: str) -> None:
        """Let pass."""


def test_an_engine_that_does_not_answer_is_told() -> None:
    keeper = StatisticsThread(":memory:", 1000, RecordingLog())
    stuck = EngineCalls(lambda _call: None)
    nothing = cast("Any", None)
    health = Health(cast("Any", _Open()), stuck, keeper, nothing, None, nothing)
    request = HttpRequest("GET", "/healthz", {}, {})
    response = asyncio.run(health.handle_health_request(request, Requester()))
    assert response.status == 503
    assert isinstance(response.body, HttpDocument)
    engine, statistics = response.body.content.decode().splitlines()
    assert "no answer within 1 s" in engine
    assert statistics == "statistics: its thread has ended"
