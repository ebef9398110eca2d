"""Dead letters are published again one by one, and acknowledged together."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.expressions.message_context import MessageContext
from server.queues.core import AckOutcome
from server.queues.topic.acknowledgement import AckTerms
from tests.engine.queues import serve_queues
from tests.engine.support import Core
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
