"""Records that match a filter for too long.

A record is tracked from when it first matches until it matches no more. All records of one trigger
wait equally long, so that they fall due in the order in which they began to be tracked, and one
timer serves them all. One that has timed out stays known, so that it times out once. Records that
match when the instance starts count as tracked since their last update.

Source: AMPS User Guide, On Message Condition Timeout; On Message State Change.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from actions.context import message_variables
from actions.options import fixed_interval_s
from actions.records import OnRecords
from server.storage.sow.records import to_seconds
from server.topics.subscriptions.delivery.envelope import iso_timestamp
from server.topics.subscriptions.delivery.record_delivery import MATCH
from server.util.clock import SteadySeconds
from server.util.encoding import text_to_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from actions.action import Action
    from actions.services import ActionServices
    from config_schema.spec import Options
    from server.topics.subscriptions.delivery.envelope import Envelope
    from server.topics.subscriptions.delivery.record_delivery import RecordMessage


@dataclass(slots=True)
class _TrackedRecord:
    """A record that matches.

    Attributes:
        since_s: when it began to, by the steady clock.
        client_name: the publisher of its current state, if known.
        bookmark: of its current state; empty if it has none.
    """

    since_s: SteadySeconds
    client_name: str
    bookmark: str

    def update(self, envelope: Envelope) -> None:
        """Store a new state."""
        self.client_name = envelope.client_name
        self.bookmark = envelope.bookmark


class OnTrackedRecords(OnRecords):
    """Runs when a record has matched a filter for a duration; without one, as soon as it matches.

    A subclass may also handle records that stop matching before that.
    """

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._duration_s = fixed_interval_s(options.get("Duration") or "0s")
        # By topic and key, oldest first; a plain dict would scan all entries removed before.
        self._tracked: OrderedDict[tuple[str, str], _TrackedRecord] = OrderedDict()
        self._timed_out_keys: set[tuple[str, str]] = set()
        self._cancel_timer: Callable[[], None] | None = None

    def timeout_variables(self) -> dict[str, bytes]:
        """Further variables of a run for a record that has timed out."""
        return {}

    def stop_variables(self) -> dict[str, bytes] | None:
        """Further variables of a run for one that stopped matching; None for no run."""
        return None

    def provision(self, services: ActionServices, action: Action) -> None:
        """Subscribe, and track the records that match already."""
        super().provision(services, action)
        self._clock = services.engine.clock
        self._track_matching_records()

    def close(self) -> None:
        """Unsubscribe, and cancel the timer."""
        super().close()
        if self._cancel_timer is not None:
            self._cancel_timer()
            self._cancel_timer = None

    def on_record(self, topic: str, body: bytes, message: RecordMessage) -> None:  # noqa: ARG002 - see `MessageSink`
        """Track the record, unless it is tracked already."""
        record_key = topic, message.key
        tracked = self._tracked.get(record_key)
        if tracked is not None:
            tracked.update(message.envelope)
        elif record_key not in self._timed_out_keys:
            tracked = self._tracked[record_key] = _TrackedRecord(self._clock.steady(), "", "")
            tracked.update(message.envelope)
            self._set_timer()

    def on_oof(self, topic: str, body: bytes, message: RecordMessage) -> None:
        """Stop tracking the record."""
        record_key = topic, message.key
        self._timed_out_keys.discard(record_key)
        tracked = self._tracked.pop(record_key, None)
        stop_variables = self.stop_variables()
        if tracked is not None and stop_variables is not None:
            if message.reason == MATCH:  # the others leave the record as it was
                tracked.update(message.envelope)
            self.action.post(self._variables(record_key, body, tracked) | stop_variables)

    def _track_matching_records(self) -> None:
        for record in self.matching_records():
            updated_s = to_seconds(record.timestamp) - self._clock.wall_offset_s
            since_s = SteadySeconds(min(updated_s, self._clock.steady()))
            self._tracked[record.topic, record.key] = _TrackedRecord(since_s, "", record.bookmark)
        self._set_timer()

    def _set_timer(self) -> None:
        if self._cancel_timer is None and self._tracked:
            oldest = next(iter(self._tracked.values()))
            delay = oldest.since_s + self._duration_s - self._clock.steady()
            self._cancel_timer = self._clock.call_later(max(delay, 0.0), self._on_timer)

    def _on_timer(self) -> None:
        self._cancel_timer = None
        cutoff_s = self._clock.steady() - self._duration_s
        while self._tracked:
            record_key, tracked = next(iter(self._tracked.items()))
            if tracked.since_s > cutoff_s:
                break
            del self._tracked[record_key]
            self._timed_out_keys.add(record_key)
            body = self.current_body(*record_key)
            if body is not None:
                self.action.post(
                    self._variables(record_key, body, tracked) | self.timeout_variables()
                )
        self._set_timer()

    def _variables(
        self, record_key: tuple[str, str], body: bytes, tracked: _TrackedRecord
    ) -> dict[str, bytes]:
        topic, key = record_key
        return message_variables(topic, body) | {
            "AMPS_BOOKMARK": text_to_bytes(tracked.bookmark),
            "AMPS_TIMESTAMP": text_to_bytes(
                iso_timestamp(tracked.since_s + self._clock.wall_offset_s)
            ),
            "AMPS_CLIENT_NAME": text_to_bytes(tracked.client_name),
            "AMPS_SOW_KEY": text_to_bytes(key),
        }


class OnMessageConditionTimeout(OnTrackedRecords):
    """Runs once for each record that matches a filter for a duration."""
