"""Instances with a defect each in how they share a queue, which the simulation has to find."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from server.queues.core import (
    OutboundPeerMessage,
    OwnershipTransfers,
    PublisherSequence,
    Queue,
    QueueEvent,
    Transferred,
    TransferRequest,
)
from server.queues.core.message_state import MessageLifecycle
from server.queues.core.ownership import OwnershipClaim
from server.queues.core.remote_events import RemoteEvents
from server.queues.core.states import AVAILABLE, BEHIND, LEASED
from tests.replication.queue_simulation import Host


class OwnsEverything(OwnershipTransfers):
    """Holds every message for its own."""

    def initial_owner(self, publisher: str) -> str:
        return ""


class HandsOnWhatIsLeased(OwnershipTransfers):
    """Hands on what a consumer has."""

    def _may_transfer(self, offset: int, asker: str) -> bool:
        lifecycle = self._queue.lifecycle
        if lifecycle.entries.state(offset) == LEASED and not lifecycle.entries.owner(offset):
            title = OwnershipClaim(lifecycle.ownership_claim(offset).transfer_count + 1, asker)
            lifecycle.change_owner(offset, title, 0)
            event = Transferred(
                0, [lifecycle.entries.bookmark(offset)], asker, [title.transfer_count]
            )
            lifecycle.events.append(event)
        return super()._may_transfer(offset, asker)


class TakesForGranted(OwnershipTransfers):
    """Takes what it has asked for without a word of the owner."""

    def process_transfers(self, now: int) -> list[OutboundPeerMessage]:
        said = super().process_transfers(now)
        for _, word in said:
            if isinstance(word, TransferRequest):
                self._queue.transfer(word.bookmarks[: word.max_transferred], self._queue.owner, now)
        return said


class ActsForEverybody(OwnershipTransfers):
    """Takes over messages whose owners can be reached."""

    def _is_proxy_for(self, owner: str) -> bool:
        return True


class HandsNothingOn(OwnershipTransfers):
    """Keeps what it has nobody for."""

    def _may_transfer(self, offset: int, asker: str) -> bool:
        return False


class AsksOnce(OwnershipTransfers):
    """Does not ask again when there is no answer."""

    def _drop_finished_requests(self, now: int) -> None:
        self._retry_times = dict.fromkeys(self._retry_times, 1 << 60)
        super()._drop_finished_requests(now)


class DeliversTooEarly(Host):
    """Delivers under at-most-once before it is stored that it does."""

    def say_what_is_stored(self) -> None:
        self.sent = [(0, delivery) for _, delivery in self.sent]
        super().say_what_is_stored()


class _Deaf(RemoteEvents):
    """Does not wait for what has not come."""

    def _remove_ended(
        self, marks: Iterable[PublisherSequence], now: int, *, is_replay: bool
    ) -> None:
        here = [mark for mark in marks if self._lifecycle.entries.find(mark) is not None]
        super()._remove_ended(here, now, is_replay=is_replay)


class _LastWord(MessageLifecycle):
    """Believes whoever spoke last."""

    def apply_claim(
        self, mark: PublisherSequence, title: OwnershipClaim, now: int, *, may_arrive: bool
    ) -> bool:
        offset = self.entries.find(mark)
        if offset is not None and self.entries.is_present(offset):
            self.change_owner(offset, title, now)
            return True
        return super().apply_claim(mark, title, now, may_arrive=may_arrive)


class _Stubborn(RemoteEvents):
    """Lets nobody else end what its consumers have."""

    def _remove_ended(
        self, marks: Iterable[PublisherSequence], now: int, *, is_replay: bool
    ) -> None:
        entries = self._lifecycle.entries
        offsets = {mark: entries.find(mark) for mark in marks}
        others = [
            mark
            for mark, offset in offsets.items()
            if offset is None or entries.state(offset) != LEASED
        ]
        super()._remove_ended(others, now, is_replay=is_replay)


class _Generous(MessageLifecycle):
    """Goes on delivering what it has handed on."""

    def change_owner(self, offset: int, title: OwnershipClaim, now: int) -> None:
        was_ours = not self.entries.owner(offset) and self.entries.state(offset) in (
            AVAILABLE,
            BEHIND,
        )
        super().change_owner(offset, title, now)
        if was_ours and title.owner != self._instance:
            self.entries.set_owner(offset, "")
            self.make_available(offset, now)


class _Forgetful(RemoteEvents):
    """Does not take up what others have recorded when it is started anew."""

    def apply_event(self, event: QueueEvent, now: int, *, is_replay: bool = False) -> None:
        if not is_replay:
            super().apply_event(event, now)


def with_sharing(kind: type[OwnershipTransfers]) -> type[Host]:
    return type(kind.__name__, (Host,), {"sharing_type": kind})


def with_part(kind: type[RemoteEvents | MessageLifecycle]) -> type[Host]:
    def make_queue(self: Host) -> tuple[Queue, OwnershipTransfers]:
        core, sharing = Host.make_queue(self)
        part = core.lifecycle if issubclass(kind, MessageLifecycle) else core.remote_events
        part.__class__ = kind
        return core, sharing

    return type(kind.__name__, (Host,), {"make_queue": make_queue})


MUTANTS: dict[str, tuple[str, type[Host]]] = {
    "owns everything": ("pair", with_sharing(OwnsEverything)),
    "hands on what is leased": ("pair", with_sharing(HandsOnWhatIsLeased)),
    "takes for granted what it asks for": ("pair", with_sharing(TakesForGranted)),
    "acts for everybody": ("pair", with_sharing(ActsForEverybody)),
    "hands nothing on": ("pair", with_sharing(HandsNothingOn)),
    "asks once": ("pair", with_sharing(AsksOnce)),
    "delivers too early": ("pair", DeliversTooEarly),
    "does not wait for what has not come": ("no passing through", with_part(_Deaf)),
    "believes whoever spoke last": ("chain", with_part(_LastWord)),
    "lets nobody else end what is leased": ("pair", with_part(_Stubborn)),
    "delivers what it has handed on": ("pair", with_part(_Generous)),
    "forgets what others have recorded": ("pair", with_part(_Forgetful)),
}

KNOWN_SEEDS: Final = {
    "hands on what is leased": 1,
    "hands nothing on": 7,
    "asks once": 15,
    "delivers too early": 6,
    "does not wait for what has not come": 3,
    "believes whoever spoke last": 47,
    "lets nobody else end what is leased": 318,
    "delivers what it has handed on": 5,
    "forgets what others have recorded": 1,
}
"""Seeds of schedules that have shown defects: the tests try them before all others."""
