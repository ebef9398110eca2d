"""Records that match a filter for too long.

A record is tracked from when it first matches until it matches no more. All records of one trigger
wait equally long, so that they fall due in the order in which they began to be tracked, and one
timer serves them all. One that has timed out stays known, so that it times out once. Records that
match when the instance starts count as tracked since their last update.

Source: AMPS User Guide, On Message Condition Timeout; On Message State Change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from actions.messages import message_variables
from actions.records import OnRecords
from config_schema.units import parse_interval
from server.storage.sow.records import to_seconds
from server.topics.subscriptions.delivery.envelope import iso_timestamp
from server.topics.subscriptions.delivery.record_delivery import MATCH
from server.util.clock import SteadySeconds
from server.util.encoding import text_to_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from actions.services import ActionHandle, ActionServices
    from config_schema.spec import Options
    from server.topics.subscriptions.delivery.envelope import Envelope
    from server.topics.subscriptions.delivery.record_delivery import RecordMessage

_NANOSECONDS: Final = 1e9


@dataclass(slots=True)
class _TrackedRecord:
    """A record that matches.

    Attributes:
        since: when it began to, by the steady clock.
        client_name: the publisher of its current state, if known.
        bookmark: of its current state; empty if it has none.
    """

    since: SteadySeconds
    client_name: str
    bookmark: str

    def take(self, envelope: Envelope) -> None:
        """Store a new state."""
        self.client_name = envelope.client_name
        self.bookmark = envelope.bookmark


class OnTrackedRecords(OnRecords):
    """Runs when a record has matched a filter for a duration; without one, as soon as it matches.

    A subclass may want to hear of those that stop matching before that, too.
    """

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._duration = parse_interval(options.get("Duration") or "0s") / _NANOSECONDS
        self._waiting: dict[tuple[str, str], _TrackedRecord] = {}  # by topic and key, oldest first
        self._timed_out: set[tuple[str, str]] = set()
        self._cancel: Callable[[], None] | None = None

    def timed_out(self) -> dict[str, bytes]:
        """Further variables of a run for a record that has timed out."""
        return {}

    def stopped(self) -> dict[str, bytes] | None:
        """Further variables of a run for one that stopped matching; None for no run."""
        return None

    def provision(self, services: ActionServices, action: ActionHandle) -> None:
        """Subscribe, and track the records that match already."""
        super().provision(services, action)
        self._clock = services.engine.clock
        self._track_what_matches()

    def close(self) -> None:
        """Unsubscribe and wait no more."""
        super().close()
        if self._cancel is not None:
            self._cancel()
            self._cancel = None

    def take_record(self, topic: str, body: bytes, message: RecordMessage) -> None:  # noqa: ARG002 - see `Sink`
        """Track the record, unless it is tracked already."""
        entry = topic, message.key
        tracked = self._waiting.get(entry)
        if tracked is not None:
            tracked.take(message.envelope)
        elif entry not in self._timed_out:
            tracked = self._waiting[entry] = _TrackedRecord(self._clock.steady(), "", "")
            tracked.take(message.envelope)
            self._wait()

    def take_leaving(self, topic: str, body: bytes, message: RecordMessage) -> None:
        """Track the record no more."""
        entry = topic, message.key
        self._timed_out.discard(entry)
        tracked = self._waiting.pop(entry, None)
        more = self.stopped()
        if tracked is not None and more is not None:
            if message.reason == MATCH:  # the others leave the record as it was
                tracked.take(message.envelope)
            self.action.post(self._variables(entry, body, tracked) | more)

    def _track_what_matches(self) -> None:
        for record in self.matching():
            updated = to_seconds(record.timestamp) - self._clock.ahead
            since = SteadySeconds(min(updated, self._clock.steady()))
            self._waiting[record.topic, record.key] = _TrackedRecord(since, "", record.bookmark)
        self._wait()

    def _wait(self) -> None:
        if self._cancel is None and self._waiting:
            oldest = next(iter(self._waiting.values()))
            delay = oldest.since + self._duration - self._clock.steady()
            self._cancel = self._clock.call_later(max(delay, 0.0), self._time_out)

    def _time_out(self) -> None:
        self._cancel = None
        latest = self._clock.steady() - self._duration
        while self._waiting:
            entry, tracked = next(iter(self._waiting.items()))
            if tracked.since > latest:
                break
            del self._waiting[entry]
            self._timed_out.add(entry)
            body = self.current(*entry)
            if body is not None:
                self.action.post(self._variables(entry, body, tracked) | self.timed_out())
        self._wait()

    def _variables(
        self, entry: tuple[str, str], body: bytes, tracked: _TrackedRecord
    ) -> dict[str, bytes]:
        topic, key = entry
        return message_variables(topic, body) | {
            "AMPS_BOOKMARK": text_to_bytes(tracked.bookmark),
            "AMPS_TIMESTAMP": text_to_bytes(iso_timestamp(tracked.since + self._clock.ahead)),
            "AMPS_CLIENT_NAME": text_to_bytes(tracked.client_name),
            "AMPS_SOW_KEY": text_to_bytes(key),
        }
