"""Pages: the part of a result set that one paginated subscription sees.

For its subscriber, only the records between two positions exist. A record that enters this range is
new, however old it is, and one that leaves it is out of focus (AMPS User Guide, Paginated SOW and
Subscribe). The messages after a change follow from the old and new positions of the changed record,
and of the records beside the page's two ends:

    before  now    changed                          not changed
      no    yes    the record                       the record
      yes   yes    the record, or the difference    nothing
      yes   no     `oof`                            `oof`, reason `match`

First the changed record is sent, then the `oof` of a displaced one, then a record that moved in.

A page is held back while its first records are being sent: it keeps the states that records had
when it was cut. Changes wait meanwhile, merged into one message for each record.

A page that replaces another one takes over its client's records. If the other page was held back
until its end, the client's states may be out of date: such a record is *stale* until it is sent
again, or an `oof` for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from server.storage.sow.records import Record
from server.topics.subscriptions.delivery.record_conflation import RecordMessageForm
from server.topics.subscriptions.delivery.record_delivery import DELETED, MATCH, RecordMessage

if TYPE_CHECKING:
    from server.expressions.tree import OrderTerm
    from server.topics.subscriptions.delivery.delta import DeltaEncoder
    from server.topics.subscriptions.delivery.record_delivery import RecordDelivery
    from server.topics.subscriptions.paging.result_set import PositionChange, ResultSet
    from server.topics.subscriptions.subscription import PageTerms, Subscription

FindRecord = Callable[[str], Record | None]
"""Returns the current state of a record by its SOW key."""


class Page:
    """One page.

    Args:
        subscription: its subscription.
        terms: the range and the order.
        results: the result set that it is cut from.
        find: finds records.
        differ: makes deltas.
        deliver: returns the delivery for messages of a form.

    Attributes:
        results: see above.
        keys: the SOW keys of the records that its client has.
        is_live: whether changes are sent to the client immediately.
        has_ended: whether the page has ended, and sends nothing any more.
    """

    __slots__ = (
        "_deliver",
        "_deliveries",
        "_differ",
        "_find",
        "_former",
        "_held",
        "_messages",
        "_stale",
        "_states",
        "_subscription",
        "_suspects",
        "_terms",
        "has_ended",
        "is_live",
        "keys",
        "results",
    )

    def __init__(
        self,
        subscription: Subscription,
        terms: PageTerms,
        results: ResultSet,
        find: FindRecord,
        differ: DeltaEncoder,
        deliver: Callable[[RecordMessageForm], RecordDelivery],
    ) -> None:
        self.results: Final = results
        self.keys: Final[set[str]] = set()
        self.is_live = False
        self.has_ended = False
        self._subscription: Final = subscription
        self._terms: Final = terms
        self._find: Final = find
        self._differ: Final = differ
        self._deliver: Final = deliver
        self._deliveries: Final[dict[RecordMessageForm, RecordDelivery]] = {}
        self._states: Final[dict[str, Record | None]] = {}  # as they were when the page was cut
        self._messages: Final[dict[str, RecordMessage]] = {}  # about records that have changed
        self._suspects: Final[set[str]] = set()  # keys that may have entered or left
        self._stale: Final[set[str]] = set()  # keys of states at the client that may be outdated
        self._held = 0
        self._former: Final[dict[str, Record]] = {}  # states that its client has from earlier pages

    def results_in(self, order_by: tuple[OrderTerm, ...]) -> ResultSet | None:
        """Return the result set, if it is complete and in the given order; else None."""
        same = order_by == self._terms.order_by and self.results.is_complete
        return self.results if same else None

    def hold(self, size: int) -> None:
        """Charge `size` bytes to the client's memory, in place of the bytes charged so far."""
        self._subscription.subscriber.hold(size - self._held)
        self._held = size

    # ---- its first records

    def cut(self) -> list[str]:
        """Return the keys of the page's records, in order, and count them as its client's."""
        cut = self.results.keys(self._terms.start, self._terms.stop)
        self.keys.update(cut)
        return cut

    def state(self, key: str) -> Record | None:
        """Return a record as it was when the page was cut; None if there was none."""
        return self._states[key] if key in self._states else self._find(key)

    def known(self, key: str) -> Record | None:
        """Return a record as its client has it from the page before; None if there was none."""
        return self._former.get(key) or self.state(key)

    def inherit(self, replaced: Page) -> None:
        """Take over the client's records from a page that has ended."""
        self._suspects.update(replaced.keys)
        self.keys.update(replaced.keys)
        if not replaced.is_live:
            self._stale.update(replaced.keys)
            for states in (replaced._states, replaced._former):
                self._former.update((key, state) for key, state in states.items() if state)

    def sent(self, keys: Sequence[str]) -> None:
        """Record that some of the page's first records are on their way."""
        self._stale.difference_update(keys)
        for key in keys:
            self._former.pop(key, None)

    def unsent(self, keys: Iterable[str]) -> None:
        """Record that some of the page's first records will never be sent."""
        self.keys.difference_update(key for key in keys if key not in self._stale)

    def release(self) -> None:
        """Send the changes since the page was cut, and go live."""
        if not self.has_ended:
            self._settle()
            self._states.clear()
            self._former.clear()
            self.is_live = True

    def end(self) -> None:
        """End the page: nothing is sent any more."""
        self.has_ended = True
        self.results.detach(self)

    # ---- following

    def keep(self, key: str, previous: Record | None) -> None:
        """Keep the state of a record before its change; called until the page is live."""
        self._states.setdefault(key, previous)

    def take(self, key: str, message: RecordMessage, move: PositionChange) -> None:
        """Apply a change of a record that matches, or did.

        Args:
            key: its SOW key.
            message: the change, as subscribers see it.
            move: its old and new position.
        """
        # A page that is held back keeps all: it is not known yet which records it will inherit.
        has_come = move.now is not None and self._covers(move.now)
        if not self.is_live or key in self.keys or has_come:
            earlier = self._messages.get(key)
            self._messages[key] = message if earlier is None else message.since(earlier)
        for boundary in (self._terms.start, self._terms.stop):
            if move.crosses(boundary):
                self._suspects.update(self.results.around(boundary))
        if self.is_live:
            self._settle()

    def _settle(self) -> None:
        """Send messages about all records that may have changed for the client."""
        for key, message in self._messages.items():
            if self._is_on(key):
                if message.previous is None and key in self.keys:  # removed, re-added while held
                    self._leave(key, self._departure(key))
                self._tell(self._form(key), message)
                self._has(key)
            elif key in self.keys:
                self._leave(key, message)
        self._messages.clear()
        if not self._suspects:
            return
        for key in [key for key in self._suspects if key in self.keys and not self._is_on(key)]:
            self._leave(key, self._message(key))
        for key in [key for key in self._suspects if not self._is_known(key) and self._is_on(key)]:
            self._tell(RecordMessageForm.WHOLE, self._message(key))
            self._has(key)
        self._suspects.clear()

    def _covers(self, position: int) -> bool:
        return self._terms.start <= position < self._terms.stop

    def _is_on(self, key: str) -> bool:
        position = self.results.position(key)
        return position is not None and self._covers(position)

    def _form(self, key: str) -> RecordMessageForm:
        """Return the form of a changed record; whole if it is new to the client."""
        differs = self._subscription.delta and self._differ.works and self._is_known(key)
        return RecordMessageForm.DELTA if differs else RecordMessageForm.WHOLE

    def _is_known(self, key: str) -> bool:
        """Return True if the client has the record's state before the next message."""
        return key in self.keys and key not in self._stale

    def _has(self, key: str) -> None:
        self.keys.add(key)
        self._stale.discard(key)

    def _leave(self, key: str, message: RecordMessage) -> None:
        self.keys.discard(key)
        self._stale.discard(key)
        if self._subscription.tracks_focus:
            self._tell(RecordMessageForm.LEAVING, message)

    def _message(self, key: str) -> RecordMessage:
        """Return the message about an unchanged record that has entered or left the page."""
        record = self._find(key)
        if record is None:  # removed; its client was taken over from another page
            return self._departure(key)
        return RecordMessage.about(record, MATCH, self._differ)

    def _departure(self, key: str) -> RecordMessage:
        """Return the message about a record that was removed while the page was held back."""
        last = self._former.get(key) or self._states.get(key) or Record(key, b"", "")
        return RecordMessage.about(last, DELETED, self._differ)

    def _tell(self, form: RecordMessageForm, message: RecordMessage) -> None:
        delivery = self._deliveries.get(form)
        if delivery is None:
            delivery = self._deliveries[form] = self._deliver(form)
        delivery.deliver(message)
