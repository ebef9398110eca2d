"""Whatever is asked for, the answer is no defect."""

from __future__ import annotations

import http.client
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.admin.tree import TREE_NODES
from tests.admin.support import Admin, read, running_admin
from tests.support.chances import examples
from tests.support.waiting import WAIT_SECONDS

NAMES = sorted(
    {name for place in TREE_NODES for name in place.split("/")} | {"amps", "all", "1", "pid"}
)
PART = st.sampled_from(NAMES) | st.sampled_from(
    ["", ".", "..", "%2f", "%00", "%ff", "any-tcp", "details", "timestamp", "config.xml", "a b%20"]
)
FORM = st.sampled_from(["", ".json", ".xml", ".csv", ".rnc", ".", ".json.json", "%2ejson"])
TIME = st.sampled_from(
    ["", "0", "20261123", "00010101", "99991231T235959.999999", "20261123T25", "20261123T0Z", "%f0"]
)
QUERY = st.dictionaries(st.sampled_from(["t0", "t1", "x"]), TIME, max_size=3)


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    with running_admin(tmp_path_factory.mktemp("admin")) as running:
        yield running
        assert "19-0007" not in running.server.log()
        assert "01-0004" not in running.server.log()


@settings(max_examples=examples(400), deadline=None)
@given(st.lists(PART, max_size=6), FORM, QUERY)
def test_any_path_is_answered(
    admin: Admin, parts: list[str], form: str, query: dict[str, str]
) -> None:
    path = "/" + "/".join(["amps", *parts]).replace(" ", "%20") + form
    asked = "&".join(f"{name}={value}" for name, value in query.items())
    connection = http.client.HTTPConnection("127.0.0.1", admin.port, timeout=WAIT_SECONDS)
    connection.request("GET", f"{path}?{asked}" if asked else path)
    reply = read(connection)
    connection.close()
    assert reply.status in (200, 400, 404), (path, asked, reply.text)
