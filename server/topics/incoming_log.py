"""Says what cannot be taken in from other instances: at once, and then once a minute."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from server.journal import Topic

if TYPE_CHECKING:
    from server.base.clock import Clock
    from server.base.log import Log
    from server.topics.arrivals import Arrivals

_SECONDS: Final = 60.0
"""Between two entries about the same."""

_MOST_SUBJECTS: Final = 1000
"""Of which it is known when they were mentioned; those beyond are one."""

_REFUSED: Final = "1D-0022"
_UNAPPLIED: Final = "1D-0023"
_WAITING: Final = "1D-0024"
_RESUMED: Final = "1D-0025"


@dataclass(slots=True)
class _Subject:
    """Something that is said now and then.

    Attributes:
        count: entries concerned that have not been mentioned.
        last: what is to be said of the last of them.
    """

    count: int = 0
    last: dict[str, object] = field(default_factory=dict)


class IncomingLog:
    """Writes log entries about what cannot be taken in.

    Args:
        clock: the time, and timers.
        log: where they are written.
    """

    def __init__(self, clock: Clock, log: Log) -> None:
        self._clock: Final = clock
        self._log: Final = log
        self._subjects: dict[tuple[str, str, Topic], _Subject] = {}
        self._waiting: set[str] = set()

    def say(self, arrivals: Arrivals, source: str) -> None:
        """Say what could not be taken in, if it is time to.

        Args:
            arrivals: what has come.
            source: the name of the instance that it came from.
        """
        if arrivals.problem is not None:
            self._waiting.add(source)
            self._mention(_WAITING, arrivals, source, 1, arrivals.position, arrivals.problem)
        elif source in self._waiting:
            self._waiting.discard(source)
            self._log.emit(_RESUMED, source=source)
        for message_id, failed in (
            (_REFUSED, arrivals.refused),
            (_UNAPPLIED, arrivals.unapplied),
        ):
            if failed:
                position, problem = failed[-1]
                self._mention(message_id, arrivals, source, len(failed), position, problem)

    def _mention(
        self,
        message_id: str,
        arrivals: Arrivals,
        source: str,
        count: int,
        position: int,
        problem: Exception,
    ) -> None:
        topic = arrivals.run.topic
        key = message_id, source, topic
        if key not in self._subjects and len(self._subjects) >= _MOST_SUBJECTS:
            key = message_id, source, Topic(topic.message_type, "")
        subject = self._subjects.get(key)
        is_new = subject is None
        if subject is None:
            subject = self._subjects[key] = _Subject()
        subject.count += count
        subject.last = {
            "source": source,
            "topic": topic.name,
            "message_type": topic.message_type,
            "bookmark": arrivals.bookmark(position),
            "problem": str(problem) or repr(problem),
        }
        if is_new:
            self._emit(key)

    def _emit(self, key: tuple[str, str, Topic]) -> None:
        """Say what there is to say of a subject, and forget it when there is nothing."""
        subject = self._subjects[key]
        if not subject.count:
            del self._subjects[key]
            return
        self._log.emit(key[0], count=subject.count, **subject.last)
        subject.count = 0
        self._clock.call_later(_SECONDS, partial(self._emit, key))
