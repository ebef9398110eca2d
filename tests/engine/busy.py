"""An engine whose work takes time, and clients that keep it busy.

Time is counted in looks at the clock: each takes as long as the test says. A look belongs to each
command, and to each run of publishes.
"""

from __future__ import annotations

from typing import Final

from server.engine.scheduler import ROUND_SECONDS
from tests.engine.support import Core, CorePeer
from tests.storage.sow.support import topic_spec
from tests.support.raw import frame

BUSY: Final = ROUND_SECONDS / 4
"""A look at the clock takes so long that a few make a turn."""


def busy_core() -> Core:
    """Make an engine whose work takes time, with a topic `records`."""
    core = Core()
    core.keep(topic_spec("/id", name="records"))
    core.clock.work_per_look = BUSY
    return core


def heartbeats(count: int) -> bytes:
    """Commands that are acknowledged one by one."""
    return b"".join(
        frame({"c": "heartbeat", "cid": str(number), "a": "processed"}) for number in range(count)
    )


def numbers(peer: CorePeer) -> list[int]:
    """Which of them have been acknowledged since the last time."""
    return [int(header["cid"]) for header, _ in peer.take_frames() if header["c"] == "ack"]


def log_on(core: Core, name: str) -> CorePeer:
    """A client whose answers have been read."""
    peer = core.log_on(name)
    peer.take_frames()
    return peer


def subscriptions(ids: range, **options: str) -> bytes:
    """Commands that subscribe to one topic many times."""
    return b"".join(
        frame({"c": "subscribe", "sub_id": str(n), "t": "orders", **options}) for n in ids
    )
