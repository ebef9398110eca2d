"""The logical topics of a container have the permissions of the container's name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from server.security.entitlement import FixedEntitlement
from server.security.permissions import Permission, Permit
from tests.engine.support import Core, CorePeer
from tests.storage.sow.support import topic_spec


class OnlyContainer:
    """Lets everybody use the topic `allowed`, and no other."""

    def get_permit(self, permission: Permission, resource: str) -> Permit:
        """See `Permissions`."""
        return Permit(permission is Permission.LOGON or resource == "allowed")

    def allows_instance(self, name: str) -> bool | None:
        return None

    def release(self) -> None:
        """See `Permissions`."""


@pytest.fixture
def peer() -> CorePeer:
    """A connection; /allowed/own is a topic of its own, in no container."""
    core = Core()
    core.keep(
        topic_spec(name="/allowed/own"),
        topic_spec(name="allowed", pattern="^/allowed/"),
        topic_spec(name="denied", pattern="^/denied/"),
    )
    core.entrance = replace(core.entrance, entitlement=FixedEntitlement(OnlyContainer()))
    peer = core.log_on()
    peer.take_frames()
    return peer


@pytest.mark.parametrize("command", ["publish", "sow", "subscribe", "sow_and_subscribe"])
@pytest.mark.parametrize(
    ("topic", "status"),
    [("/allowed/a", "success"), ("/denied/a", "failure"), ("/allowed/own", "failure")],
)
def test_who_may(peer: CorePeer, command: str, topic: str, status: str) -> None:
    """What is asked for a logical topic is answered for its container."""
    peer.send({"c": command, "cid": "1", "t": topic, "a": "processed"}, b'{"id":1}')
    acks = [header for header, _ in peer.take_frames() if header["c"] == "ack"]
    assert [ack["status"] for ack in acks] == [status]


def test_regular_expressions_pass_over_what_is_not_allowed(peer: CorePeer) -> None:
    """In all commands that take one."""
    for topic in ("/allowed/a", "/denied/a", "/allowed/own"):
        peer.send({"c": "publish", "t": topic}, b'{"id":1}')
    peer.send({"c": "sow_delete", "cid": "1", "t": "^/", "f": "1=1", "a": "stats"})
    acks = [header for header, _ in peer.take_frames() if header.get("a") == "stats"]
    assert [ack["records_deleted"] for ack in acks] == [1]
