"""Dead letters are published again one by one, and acknowledged together."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from server.admin.operations.operation import OperationError
from server.admin.operations.queues import queue_group
from server.expressions.message_context import MessageContext
from server.queues.core import AckOutcome
from server.queues.topic.acknowledgement import AckTerms
from tests.engine.queues import serve_queues
from tests.engine.support import Core
from tests.storage.journal.support import FailingDisk
from tests.support.raw import frame


def test_letters_that_went_back_are_acknowledged_if_a_later_one_fails(tmp_path: Path) -> None:
    """Else they are in both queues."""
    core = Core()
    core.record(tmp_path, "^(work|dead)$")
    serve_queues(core, {"jobs": "work", "dead-letters": "dead"})
    publisher = core.log_on("publisher")
    for number in range(5):
        publisher.send({"c": "publish", "t": "work", "s": number + 1}, b'{"n":%d}' % number)
    expire = {"c": "sow_delete", "cid": "1", "t": "jobs", "filter": "1=1", "o": "expire"}
    publisher.send_bytes(frame(expire))
    core.clock.turn()
    queues = core.engine.topics.queues
    assert queues is not None
    jobs, dead_letters = queues

    def may_publish(_topic: str, body: bytes, _context: MessageContext) -> bool:
        if body == b'{"n":3}':
            raise OSError(body)
        return True

    offsets = [*dead_letters.core.lifecycle.entries.offsets()]
    assert len(offsets) == 5
    with pytest.raises(OSError, match="3"):
        dead_letters.dead_letter_redrive.redrive(
            offsets, AckTerms(AckOutcome.DONE, client=0), may_publish
        )
    assert [*dead_letters.core.lifecycle.entries.offsets()] == offsets[3:]
    assert len([*jobs.core.lifecycle.entries.offsets()]) == 3
    core.transaction_log.close()


def test_a_purge_that_fails_says_how_many_have_left(tmp_path: Path) -> None:
    """An acknowledgement takes effect also if the log cannot record it."""
    disk = FailingDisk()
    core = Core()
    core.record(tmp_path, "^work$", disk=disk)
    serve_queues(core, {"jobs": "work"})
    publisher = core.log_on("publisher")
    for number in range(5):
        publisher.send({"c": "publish", "t": "work", "s": number + 1}, b'{"n":%d}' % number)
    core.commit()
    disk.broken = True
    publisher.send({"c": "publish", "t": "work", "s": 6}, b'{"n":5}')
    core.commit()
    assert core.engine.topics.queues is not None
    (jobs,) = core.engine.topics.queues
    count = len([*jobs.core.lifecycle.entries.offsets()])
    services: Any = SimpleNamespace(engine=core.engine)
    purge = queue_group(services).find_operation("purge")
    assert purge is not None
    with pytest.raises(OperationError, match=f"; {count} messages have left jobs"):
        asyncio.run(purge.execute("jobs!json", {}))
    assert count == 6
