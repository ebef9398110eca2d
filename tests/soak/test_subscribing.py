"""Subscriptions that have ended leave nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak.process import resident_bytes
from tests.support.long_form import spread
from tests.support.server import running_server

FILTERS = [
    "/symbol = 'SYM{n}' AND /price > {n}",
    "/symbol = 'SYM{n}' AND /price{n} > 1",
    "/price{n} > {n}",
]
COUNT = 5_000
MAX_GROWTH = 2 * 1024 * 1024


@pytest.mark.parametrize("text", spread(FILTERS, 1))
def test_memory_of_filters_is_used_again(tmp_path: Path, text: str) -> None:
    """Filters with other constants and fields each take some hundred bytes to some kilobytes."""
    with running_server(tmp_path) as server, server.log_on("subscriber") as peer:
        sizes = []
        for begin in range(0, 4 * COUNT, COUNT):
            with peer.at_once():
                for number in range(begin, begin + COUNT):
                    sub_id, filter_ = str(number), text.format(n=number)
                    peer.send({"c": "subscribe", "t": "t", "sub_id": sub_id, "f": filter_})
                peer.publish("t", b"{}")
                peer.send({"c": "unsubscribe", "sub_id": "all"})
            peer.flush()
            sizes.append(resident_bytes(server.process.pid))
    assert sizes[-1] - sizes[1] < MAX_GROWTH  # caches are full after the first two rounds
