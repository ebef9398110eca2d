"""Requests missing data from other instances: one item at a time, from one peer after the other.

A peer that could not supply an item gets another request when it reconnects, for it may have
received the item meanwhile. An item that no connected peer has is given up for the time being; but
not at once, because links may still be made when the item is first found to be missing. Messages
may be lost, as when one of two links with an instance ends: without a response, a request is
repeated for a while.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from server.replication.links.registry import LinkRegistry
    from server.topics.transaction_log import TransactionLog
    from server.util.clock import Clock

MAX_MISSING_ITEMS: Final = 1_000
"""Missing items remembered; one is requested at a time, and further ones are dropped."""

_TICK_INTERVAL_S: Final = 1.0
_RESPONSE_TIMEOUT_S: Final = 10.0
"""Seconds to wait for a response, and for links to be made after an item is first missing."""

_RETRY_INTERVAL_S: Final = 2.0
"""Seconds after which a request is repeated."""

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(slots=True)
class PeerRequest(Generic[_Item]):
    """A request to an instance.

    Attributes:
        key: the key of the item.
        item: the item.
        peer: the instance.
        since_s: time of the request, or of its latest partial response, in seconds.
        sent_s: time when the request was sent last, in seconds.
    """

    key: int
    item: _Item
    peer: str
    since_s: float
    sent_s: float


class PeerRequester(Generic[_Item]):
    """Missing items, by key, and the request for one of them.

    Args:
        links: the links.
        clock: the time, and timers.
        send_request: sends a request; the receiver of the response calls `extend_timeout`,
            `finish_request` or `start_repair`.
        resend_request: requests the part of the item that has not arrived.
        on_tick: called about once a second, until all items have been given up.
        will_arrive_unrequested: returns whether an item need not be requested now.

    Attributes:
        missing_items: the missing items.
        pending_request: the request without a response; None if there is none.
    """

    def __init__(
        self,
        links: LinkRegistry,
        clock: Clock,
        send_request: Callable[[PeerRequest[_Item]], None],
        resend_request: Callable[[PeerRequest[_Item]], None],
        on_tick: Callable[[], None],
        will_arrive_unrequested: Callable[[_Item], bool] = lambda _: False,
    ) -> None:
        self.missing_items: Final[dict[int, _Item]] = {}
        self.pending_request: PeerRequest[_Item] | None = None
        self._links: Final = links
        self._clock: Final = clock
        self._send_request: Final = send_request
        self._resend_request: Final = resend_request
        self._will_arrive_unrequested: Final = will_arrive_unrequested
        self._on_tick: Final = on_tick
        self._tried_peers: dict[int, set[str]] = {}  # by key, the peers that could not supply it
        self._repairing_keys: set[int] = set()  # keys of items that are being repaired
        self._first_missing_s: float | None = None
        self._cancel_timer: Callable[[], None] | None = None

    def close(self) -> None:
        """Drop all items, and stop the timer."""
        self.missing_items.clear()
        self.pending_request = None
        if self._cancel_timer is not None:
            self._cancel_timer()

    def add_item(self, key: int, item: _Item) -> None:
        """Add a missing item; it is requested after the next `request_next`."""
        if len(self.missing_items) < MAX_MISSING_ITEMS:
            self.missing_items.setdefault(key, item)
            if self._first_missing_s is None:
                self._first_missing_s = self._clock.steady()

    def remove_item(self, key: int) -> None:
        """Remove an item that is no longer missing, or is not available."""
        self.missing_items.pop(key, None)
        self._tried_peers.pop(key, None)
        self._repairing_keys.discard(key)

    def is_given_up(self, key: int) -> bool:
        """Return whether no connected peer has a missing item."""
        if self.pending_request is not None and self.pending_request.key == key:
            return False
        if key in self._repairing_keys:
            return False
        is_early = self._clock.steady() - (self._first_missing_s or 0.0) < _RESPONSE_TIMEOUT_S
        return not is_early and self._tried_peers.get(key, set()).issuperset(self._links.peers)

    def update_peers(self) -> None:
        """Update the tried peers after a link has been opened or closed."""
        peers = self._links.peers
        for tried in self._tried_peers.values():
            tried.intersection_update(peers)  # a peer that reconnects may have it
        if self.pending_request is not None and self.pending_request.peer not in peers:
            self.pending_request = None
        self.request_next()

    def request_next(self) -> None:
        """Request the next item, if no request is pending and an untried peer is connected."""
        if self.pending_request is not None or not self.missing_items:
            return
        self._schedule_tick()
        peers = list(self._links.peers)
        for key, item in self.missing_items.items():
            if key in self._repairing_keys or self._will_arrive_unrequested(item):
                continue
            tried = self._tried_peers.setdefault(key, set())
            for peer in peers:
                if peer not in tried:
                    tried.add(peer)
                    now = self._clock.steady()
                    self.pending_request = PeerRequest(key, item, peer, now, now)
                    self._send_request(self.pending_request)
                    return

    def extend_timeout(self) -> None:
        """Restart the timeout after a partial response: the peer has more to send."""
        if self.pending_request is not None:
            self.pending_request.since_s = self.pending_request.sent_s = self._clock.steady()

    def finish_request(self) -> None:
        """End the request: the peer has nothing more to send."""
        self.pending_request = None
        self.request_next()

    def start_repair(self) -> None:
        """End the request: its item has arrived, and is not requested while it is repaired.

        The repair ends with `remove_item`, or with `end_repair` if the item is still missing.
        """
        if self.pending_request is not None:
            self._repairing_keys.add(self.pending_request.key)
            self.pending_request = None

    def end_repair(self, key: int) -> None:
        """End a repair that has changed nothing: the item may be requested from other peers."""
        self._repairing_keys.discard(key)

    def _schedule_tick(self) -> None:
        if self._cancel_timer is None:
            self._cancel_timer = self._clock.call_later(_TICK_INTERVAL_S, self._tick)

    def _tick(self) -> None:
        """End or repeat a request that has timed out."""
        self._cancel_timer = None
        pending_request, now = self.pending_request, self._clock.steady()
        if pending_request is not None and now - pending_request.since_s > _RESPONSE_TIMEOUT_S:
            self.finish_request()
        elif pending_request is not None and now - pending_request.sent_s > _RETRY_INTERVAL_S:
            pending_request.sent_s = now
            self._resend_request(pending_request)
        self._on_tick()
        if not all(map(self.is_given_up, self.missing_items)):
            self._schedule_tick()


class PeerResponder:
    """Responds to requests of other instances, one of each at a time; others are dropped.

    Args:
        log: the log, which the worker thread reads for the responses.
        links: the links.
        subject: the subject of the messages.
    """

    def __init__(self, log: TransactionLog, links: LinkRegistry, subject: str) -> None:
        self._log: Final = log
        self._links: Final = links
        self._subject: Final = subject
        self._pending_peers: set[str] = set()

    def send_response(
        self, peer: str, find: Callable[[], _Result], make_response: Callable[[_Result], bytes]
    ) -> None:
        """Send a response, made of the results of the worker thread.

        Args:
            peer: the requesting instance.
            find: called on the worker thread.
            make_response: makes the response, on the engine's thread, without data that the peer is
                not entitled to.
        """
        if peer in self._pending_peers:
            return
        self._pending_peers.add(peer)

        def send(result: _Result) -> None:
            self._pending_peers.discard(peer)
            self._links.send_message(peer, self._subject, make_response(result))

        self._log.run_on_worker(find, send)
