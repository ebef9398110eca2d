"""/healthz and /readyz, as an orchestrator asks for them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

import pytest

from server.admin.access import Visitor
from server.admin.engine_side import EngineSide
from server.admin.health import Health, Transports
from server.admin.http.messages import Document, Request
from server.statistics.keeper import Keeper
from tests.admin.support import Admin, running_admin
from tests.core.support import RecordingLog
from tests.support.server import free_port
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


def test_what_is_asked_for_in_another_way_is_refused(admin: Admin) -> None:
    reply = admin.ask("/readyz?replication=some")
    assert reply.status == 400
    assert "expected sync or all" in reply.text


class _Open:
    """Lets everybody see everything."""

    async def require(self, _visitor: Visitor, _path: str) -> None:
        """Let pass."""


def test_an_engine_that_does_not_answer_is_told() -> None:
    keeper = Keeper(":memory:", 1000, RecordingLog())
    stuck = EngineSide(lambda _call: None)
    health = Health(cast("Any", _Open()), stuck, keeper, cast(Transports, None), None)
    request = Request("GET", "/healthz", {}, {})
    response = asyncio.run(health.lives(request, Visitor()))
    assert response.status == 503
    assert isinstance(response.body, Document)
    engine, statistics = response.body.content.decode().splitlines()
    assert "no answer within 1 s" in engine
    assert statistics == "statistics: its thread has ended"
