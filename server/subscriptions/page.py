"""A page: what one paginated subscription sees of a result set.

To its subscriber there is nothing but the records between two positions. A record that comes there
is new to it, however old it is, and one that gets out of there is out of focus (AMPS User Guide,
Paginated SOW and Subscribe). What is told after a change follows from where the record concerned,
and those beside the page's two ends, were before and are now:

    before  now    changed                          not changed
      no    yes    the record                       the record
      yes   yes    the record, or what differs      nothing
      yes   no     `oof`                            `oof`, reason `match`

First comes the record that changed, then what had to make room, then what came in instead.

A page is held back while its first records are being sent: it keeps the states that records had
when it was cut, and what is to be told waits, merged into one message for each record.

A page that takes the place of another one takes over what its client has. If that page was held
back until its end, what the client has may be out of date: it is *stale* until it has been sent
again, or called back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from server.sow.records import Record
from server.subscriptions.record_conflation import Form
from server.subscriptions.record_delivery import DELETED, MATCH, RecordMessage

if TYPE_CHECKING:
    from server.expressions.tree import OrderTerm
    from server.subscriptions.difference import Differ
    from server.subscriptions.record_delivery import RecordDelivery
    from server.subscriptions.result_set import Move, ResultSet
    from server.subscriptions.subscription import PageTerms, Subscription

Find = Callable[[str], Record | None]
"""Finds the current state of a record by its SOW key."""


class Page:
    """One page.

    Args:
        subscription: whose it is.
        terms: which one it is.
        results: what it is cut from.
        find: finds records.
        differ: makes deltas.
        deliver: makes what tells its subscriber about records.

    Attributes:
        results: see above.
        keys: the SOW keys of the records that its client has.
        is_live: whether its client is told of changes as they come.
        has_ended: whether it is told nothing any more.
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
        find: Find,
        differ: Differ,
        deliver: Callable[[Form], RecordDelivery],
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
        self._deliveries: Final[dict[Form, RecordDelivery]] = {}
        self._states: Final[dict[str, Record | None]] = {}  # as they were when the page was cut
        self._messages: Final[dict[str, RecordMessage]] = {}  # about records that have changed
        self._suspects: Final[set[str]] = set()  # keys that may have come or gone
        self._stale: Final[set[str]] = set()  # keys of what its client may have as it is no more
        self._held = 0
        self._former: Final[dict[str, Record]] = {}  # as its client has them from before

    def results_in(self, order_by: tuple[OrderTerm, ...]) -> ResultSet | None:
        """What it is cut from, if that is complete and in some order."""
        same = order_by == self._terms.order_by and self.results.is_complete
        return self.results if same else None

    def hold(self, size: int) -> None:
        """Let bytes count as memory of its client, instead of those that have counted so far."""
        self._subscription.subscriber.hold(size - self._held)
        self._held = size

    # ---- its first records

    def cut(self) -> list[str]:
        """The keys of the page's records, in order, which are its client's from now on."""
        cut = self.results.keys(self._terms.start, self._terms.stop)
        self.keys.update(cut)
        return cut

    def state(self, key: str) -> Record | None:
        """A record as it was when the page was cut; None if there was none."""
        return self._states[key] if key in self._states else self._find(key)

    def known(self, key: str) -> Record | None:
        """A record as its client has it from the page before; None if there was none."""
        return self._former.get(key) or self.state(key)

    def inherit(self, replaced: Page) -> None:
        """Take over the client of a page that has ended, with the records that it has."""
        self._suspects.update(replaced.keys)
        self.keys.update(replaced.keys)
        if not replaced.is_live:
            self._stale.update(replaced.keys)
            for states in (replaced._states, replaced._former):
                self._former.update((key, state) for key, state in states.items() if state)

    def sent(self, keys: Sequence[str]) -> None:
        """Take note that some of the page's first records are on their way."""
        self._stale.difference_update(keys)
        for key in keys:
            self._former.pop(key, None)

    def unsent(self, keys: Iterable[str]) -> None:
        """Take note that some of the page's first records will never be sent."""
        self.keys.difference_update(key for key in keys if key not in self._stale)

    def release(self) -> None:
        """Tell the client what has changed since the page was cut, and be live from now on."""
        if not self.has_ended:
            self._settle()
            self._states.clear()
            self._former.clear()
            self.is_live = True

    def end(self) -> None:
        """Tell the client nothing any more."""
        self.has_ended = True
        self.results.detach(self)

    # ---- following

    def keep(self, key: str, previous: Record | None) -> None:
        """Keep what a record was before it is changed; asked for until the page is live."""
        self._states.setdefault(key, previous)

    def take(self, key: str, message: RecordMessage, move: Move) -> None:
        """Follow a change of a record that matches, or did.

        Args:
            key: its SOW key.
            message: what subscribers are told about it.
            move: where it stands.
        """
        # What a page that is held back will inherit is not known before its turn comes.
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
        """Tell the client about everything that may have changed for it."""
        for key, message in self._messages.items():
            if self._is_on(key):
                if message.previous is None and key in self.keys:  # gone and come again, while held
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
            self._tell(Form.WHOLE, self._message(key))
            self._has(key)
        self._suspects.clear()

    def _covers(self, position: int) -> bool:
        return self._terms.start <= position < self._terms.stop

    def _is_on(self, key: str) -> bool:
        position = self.results.position(key)
        return position is not None and self._covers(position)

    def _form(self, key: str) -> Form:
        """In which form a record that has changed is sent; one that is new to the client, whole."""
        differs = self._subscription.delta and self._differ.works and self._is_known(key)
        return Form.DELTA if differs else Form.WHOLE

    def _is_known(self, key: str) -> bool:
        """Whether the client has a record as it was before what it is told next."""
        return key in self.keys and key not in self._stale

    def _has(self, key: str) -> None:
        self.keys.add(key)
        self._stale.discard(key)

    def _leave(self, key: str, message: RecordMessage) -> None:
        self.keys.discard(key)
        self._stale.discard(key)
        if self._subscription.tracks_focus:
            self._tell(Form.LEAVING, message)

    def _message(self, key: str) -> RecordMessage:
        """What there is to say about a record that has come or gone without being changed."""
        record = self._find(key)
        if record is None:  # its client was taken over
            return self._departure(key)
        return RecordMessage.about(record, MATCH, self._differ)

    def _departure(self, key: str) -> RecordMessage:
        """What there is to say about a record that has gone while the page was held back."""
        last = self._former.get(key) or self._states.get(key) or Record(key, b"", "")
        return RecordMessage.about(last, DELETED, self._differ)

    def _tell(self, form: Form, message: RecordMessage) -> None:
        delivery = self._deliveries.get(form)
        if delivery is None:
            delivery = self._deliveries[form] = self._deliver(form)
        delivery.deliver(message)
