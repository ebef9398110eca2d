"""The whole tree of a server that runs, as somebody walks it who follows links."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator

import pytest
from lxml import etree

from server.admin.tree import TREE_NODES, TreeNode
from server.statistics.schema import ColumnType, ResourceField
from tests.admin.support import Admin, Reply, read, running_admin
from tests.admin.test_programs import ELEMENTS
from tests.support.waiting import WAIT_SECONDS, wait_until


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    with (
        running_admin(tmp_path_factory.mktemp("admin"), elements=ELEMENTS) as running,
        running.server.log_on("walker"),
    ):
        wait_until(lambda: '"walker"' in running.ask("/amps/instance/clients.json").text)
        yield running


def test_every_link_leads_somewhere_and_every_value_has_a_page(admin: Admin) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", admin.port, timeout=WAIT_SECONDS)

    def get(path: str) -> Reply:
        connection.request("GET", path)
        return read(connection)

    moment = get("/amps/instance/timestamp").text.split()[-1]
    at = f"t0={moment}&t1={moment}"
    schema = {
        (place.path, one.name): one for place in TREE_NODES.values() for one in _fields(place)
    }
    waiting, seen, values = ["/"], {"/"}, set()
    while waiting:
        path = waiting.pop()
        reply = get(path)
        assert reply.status == 200, (path, reply.text)
        if not reply.headers["content-type"].startswith("text/html"):
            continue
        links = etree.HTML(reply.text).xpath("//a/@href")
        if not links:
            place, name = _place(path)
            then = "" if place.startswith("mesh/") else f"?{at}"  # that is of now only
            value = re.sub("<[^>]*>", "", get(path + then).text)
            if schema[place, name].type is not ColumnType.TEXT:
                float(value)
            if schema[place, name].type is ColumnType.INTEGER:
                int(value)
            values.add((place, name))
        new = [link for link in links if link not in seen and not _acts(link)]
        seen.update(new)
        waiting += new
    connection.close()
    expected = {
        (place.path, one.name)
        for place in TREE_NODES.values()
        if _has_values(admin, place.path)
        for one in _fields(place)
    }
    assert values >= expected
    assert len(expected) > 100


def _acts(link: str) -> bool:
    """Whether following a link does something, or leads away."""
    return not link.startswith("/") or link.startswith("/amps/administrator")


def _fields(place: TreeNode) -> tuple[ResourceField, ...]:
    return () if place.resource is None else place.resource.fields


def _place(path: str) -> tuple[str, str]:
    """Which place a value belongs to, and its name."""
    *names, name = path.removeprefix("/amps/").split("/")
    place = "/".join(names)
    return (place if place in TREE_NODES else "/".join(names[:-1])), name


def _has_values(admin: Admin, path: str) -> bool:
    found = admin.tree("/amps.json")["amps"]
    for name in filter(None, path.split("/")):
        found = found[name]
    return bool(found) and not (isinstance(found, dict) and not path)
