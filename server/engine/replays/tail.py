"""Reads the end of the log once for all bookmark subscriptions that have caught up.

They are all at the same position: a subscription joins when it has read exactly as far, and all get
every slice. Entries that a commit has made durable are read back from the log, so that order and
content are those of a replay, and a slice is matched by the filters of all at once. If its client
does not keep up, a subscription leaves, and continues with its own log reader from its position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from server.engine.replays.logged_topics import ReplayTopics
from server.engine.replays.read_retry import RETRY_INTERVAL_S, ReadRetry
from server.storage.journal import JournalUnreadableError, LogSpan

if TYPE_CHECKING:
    from server.engine.engine import Engine
    from server.engine.replays.replay import Replay
    from server.storage.journal import JournalCursor
    from server.topics.subscriptions.matching.filter_costs import FilterCost
    from server.topics.subscriptions.subscription import Subscription
    from server.topics.transaction_log import TransactionLog

_SLICE: Final = 256
"""Entries read at once; also the lag of the tail up to which a replay may join."""


class ReplayTail:
    """Reads the end of the log.

    Args:
        log: the transaction log.
        engine: the engine.
        horizon: returns the last txid that may be read.

    Attributes:
        horizon: returns the last txid that may be read.
    """

    def __init__(self, log: TransactionLog, engine: Engine, horizon: Callable[[], int]) -> None:
        self.horizon = horizon
        self._log = log
        self._engine = engine
        self._read_retry = ReadRetry(engine)
        self._topics = ReplayTopics(engine)
        self._replays: set[Replay] = set()
        self._cursor: JournalCursor = self._read_from(0)
        self._is_running = False

    @property
    def position(self) -> int:
        """The txid up to which all messages have been sent."""
        return self._cursor.position

    def try_add_replay(self, replay: Replay, position: int) -> bool:
        """Add a replay, if its position equals that of the tail.

        Args:
            replay: the replay.
            position: the txid up to which it has read.

        Returns:
            Whether it joined; then `run` has to be called.
        """
        if not self._replays:
            self._cursor = self._read_from(position)
        elif position - _SLICE <= self.position < position:
            try:
                self._read_slice()
            except JournalUnreadableError:
                return False
        if self.position != position:
            return False
        self._replays.add(replay)
        self._topics.attach(replay.subscription)
        self._cursor.reset_topic_filter()
        return True

    def remove_replay(self, replay: Replay) -> None:
        """Stop reading for a replay."""
        self._replays.discard(replay)
        self._topics.detach(replay.subscription)
        self._cursor.reset_topic_filter()

    def filter_costs(self, subscription: Subscription) -> Iterator[FilterCost]:
        """See `ReplayTopics.filter_costs`."""
        return self._topics.filter_costs(subscription)

    def _read_from(self, position: int) -> JournalCursor:
        return self._log.journal.replay(
            LogSpan(position), self._topics.wants_topic, horizon=self.horizon
        )

    def run(self) -> None:
        """Start reading, unless a step is scheduled already."""
        if not self._is_running:
            self._is_running = True
            self._engine.scheduler.start_task(self)

    def _run_again(self) -> None:
        self._is_running = False
        self.run()

    @property
    def task_label(self) -> tuple[str, str]:
        """See `EngineTask.task_label`; the work is for all that have caught up."""
        return "", "replay"

    def step(self) -> bool:
        """See `EngineTask.step`."""
        for replay in [replay for replay in self._replays if replay.session.is_behind()]:
            replay.on_fell_behind()
        if self._replays:
            try:
                self._read_slice()
            except JournalUnreadableError as error:
                return self._handle_read_error(error)
            self._read_retry.record_success()
            if not self._cursor.is_caught_up:
                return True
            self._log.when_advanced(self._run_again)  # until then it counts as running
        else:
            self._is_running = False
        return False

    def _handle_read_error(self, error: JournalUnreadableError) -> bool:
        """Retry later, or give up; return False, as there is nothing more to do in either case."""
        if self._read_retry.record_failure(error):
            for replay in list(self._replays):
                replay.on_read_failed(error)
            self._read_retry.record_success()
            self._is_running = False
        else:  # until then it counts as running
            self._engine.clock.call_later(RETRY_INTERVAL_S, self._run_from_timer)
        return False

    def _run_from_timer(self) -> None:
        self._run_again()
        self._engine.flush()

    def _read_slice(self) -> None:
        self._topics.deliver_range(self._cursor.read_raw_range(_SLICE))
