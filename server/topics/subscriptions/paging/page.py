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
        result_set: the result set that it is cut from.
        find_record: finds records.
        delta_encoder: makes deltas.
        make_delivery: returns the delivery for messages of a form.

    Attributes:
        client_keys: the SOW keys of the records that its client has.
        is_live: whether changes are sent to the client immediately.
        has_ended: whether the page has ended, and sends nothing any more.
    """

    __slots__ = (
        "_charged_bytes",
        "_deliveries",
        "_delta_encoder",
        "_find_record",
        "_inherited_states",
        "_keys_to_check",
        "_make_delivery",
        "_pending_messages",
        "_stale_keys",
        "_states_at_cut",
        "_subscription",
        "_terms",
        "client_keys",
        "has_ended",
        "is_live",
        "result_set",
    )

    def __init__(
        self,
        subscription: Subscription,
        terms: PageTerms,
        result_set: ResultSet,
        find_record: FindRecord,
        delta_encoder: DeltaEncoder,
        make_delivery: Callable[[RecordMessageForm], RecordDelivery],
    ) -> None:
        self.result_set: Final = result_set
        self.client_keys: Final[set[str]] = set()
        self.is_live = False
        self.has_ended = False
        self._subscription: Final = subscription
        self._terms: Final = terms
        self._find_record: Final = find_record
        self._delta_encoder: Final = delta_encoder
        self._make_delivery: Final = make_delivery
        self._deliveries: Final[dict[RecordMessageForm, RecordDelivery]] = {}
        self._states_at_cut: Final[
            dict[str, Record | None]
        ] = {}  # as they were when the page was cut
        self._pending_messages: Final[
            dict[str, RecordMessage]
        ] = {}  # about records that have changed
        self._keys_to_check: Final[set[str]] = set()  # keys that may have entered or left
        self._stale_keys: Final[set[str]] = (
            set()
        )  # keys of states at the client that may be outdated
        self._charged_bytes = 0
        self._inherited_states: Final[
            dict[str, Record]
        ] = {}  # states that its client has from earlier pages

    def result_set_for(self, order_by: tuple[OrderTerm, ...]) -> ResultSet | None:
        """Return the result set, if it is complete and in the given order; else None."""
        is_same = order_by == self._terms.order_by and self.result_set.is_complete
        return self.result_set if is_same else None

    def charge_memory(self, size: int) -> None:
        """Charge `size` bytes to the client's memory, in place of the bytes charged so far."""
        self._subscription.subscriber.charge_memory(size - self._charged_bytes)
        self._charged_bytes = size

    # ---- its first records

    def cut_page(self) -> list[str]:
        """Return the keys of the page's records, in order, and count them as its client's."""
        keys = self.result_set.keys_in_range(self._terms.start, self._terms.stop)
        self.client_keys.update(keys)
        return keys

    def state_at_cut(self, key: str) -> Record | None:
        """Return a record as it was when the page was cut; None if there was none."""
        return self._states_at_cut[key] if key in self._states_at_cut else self._find_record(key)

    def client_state(self, key: str) -> Record | None:
        """Return a record as its client has it from the page before; None if there was none."""
        return self._inherited_states.get(key) or self.state_at_cut(key)

    def inherit_records(self, replaced: Page) -> None:
        """Take over the client's records from a page that has ended."""
        self._keys_to_check.update(replaced.client_keys)
        self.client_keys.update(replaced.client_keys)
        if not replaced.is_live:
            self._stale_keys.update(replaced.client_keys)
            for states in (replaced._states_at_cut, replaced._inherited_states):
                self._inherited_states.update(
                    (key, state) for key, state in states.items() if state
                )

    def record_sent(self, keys: Sequence[str]) -> None:
        """Record that some of the page's first records are on their way."""
        self._stale_keys.difference_update(keys)
        for key in keys:
            self._inherited_states.pop(key, None)

    def record_unsent(self, keys: Iterable[str]) -> None:
        """Record that some of the page's first records will never be sent."""
        self.client_keys.difference_update(key for key in keys if key not in self._stale_keys)

    def go_live(self) -> None:
        """Send the changes since the page was cut, and go live."""
        if not self.has_ended:
            self._send_changes()
            self._states_at_cut.clear()
            self._inherited_states.clear()
            self.is_live = True

    def end(self) -> None:
        """End the page: nothing is sent any more."""
        self.has_ended = True
        self.result_set.detach(self)

    # ---- following

    def save_state(self, key: str, previous: Record | None) -> None:
        """Keep the state of a record before its change; called until the page is live."""
        self._states_at_cut.setdefault(key, previous)

    def apply_change(self, key: str, message: RecordMessage, move: PositionChange) -> None:
        """Apply a change of a record that matches, or did.

        Args:
            key: its SOW key.
            message: the change, as subscribers see it.
            move: its old and new position.
        """
        # A page that is held back keeps all: it is not known yet which records it will inherit.
        is_entering = move.new_position is not None and self._covers(move.new_position)
        if not self.is_live or key in self.client_keys or is_entering:
            earlier = self._pending_messages.get(key)
            self._pending_messages[key] = (
                message if earlier is None else message.merge_earlier(earlier)
            )
        for boundary in (self._terms.start, self._terms.stop):
            if move.crosses(boundary):
                self._keys_to_check.update(self.result_set.keys_around(boundary))
        if self.is_live:
            self._send_changes()

    def _send_changes(self) -> None:
        """Send messages about all records that may have changed for the client."""
        for key, message in self._pending_messages.items():
            if self._is_on_page(key):
                if (
                    message.previous is None and key in self.client_keys
                ):  # removed, re-added while held
                    self._remove_key(key, self._removal_message(key))
                self._deliver_message(self._message_form(key), message)
                self._add_key(key)
            elif key in self.client_keys:
                self._remove_key(key, message)
        self._pending_messages.clear()
        if not self._keys_to_check:
            return
        for key in [
            key
            for key in self._keys_to_check
            if key in self.client_keys and not self._is_on_page(key)
        ]:
            self._remove_key(key, self._unchanged_message(key))
        for key in [
            key for key in self._keys_to_check if not self._is_known(key) and self._is_on_page(key)
        ]:
            self._deliver_message(RecordMessageForm.FULL, self._unchanged_message(key))
            self._add_key(key)
        self._keys_to_check.clear()

    def _covers(self, position: int) -> bool:
        return self._terms.start <= position < self._terms.stop

    def _is_on_page(self, key: str) -> bool:
        position = self.result_set.position_of(key)
        return position is not None and self._covers(position)

    def _message_form(self, key: str) -> RecordMessageForm:
        """Return the form of a changed record; whole if it is new to the client."""
        differs = (
            self._subscription.sends_deltas
            and self._delta_encoder.is_supported
            and self._is_known(key)
        )
        return RecordMessageForm.DELTA if differs else RecordMessageForm.FULL

    def _is_known(self, key: str) -> bool:
        """Return True if the client has the record's state before the next message."""
        return key in self.client_keys and key not in self._stale_keys

    def _add_key(self, key: str) -> None:
        self.client_keys.add(key)
        self._stale_keys.discard(key)

    def _remove_key(self, key: str, message: RecordMessage) -> None:
        self.client_keys.discard(key)
        self._stale_keys.discard(key)
        if self._subscription.tracks_focus:
            self._deliver_message(RecordMessageForm.OOF, message)

    def _unchanged_message(self, key: str) -> RecordMessage:
        """Return the message about an unchanged record that has entered or left the page."""
        record = self._find_record(key)
        if record is None:  # removed; its client was taken over from another page
            return self._removal_message(key)
        return RecordMessage.for_unchanged_record(record, MATCH, self._delta_encoder)

    def _removal_message(self, key: str) -> RecordMessage:
        """Return the message about a record that was removed while the page was held back."""
        last = (
            self._inherited_states.get(key) or self._states_at_cut.get(key) or Record(key, b"", "")
        )
        return RecordMessage.for_unchanged_record(last, DELETED, self._delta_encoder)

    def _deliver_message(self, form: RecordMessageForm, message: RecordMessage) -> None:
        delivery = self._deliveries.get(form)
        if delivery is None:
            delivery = self._deliveries[form] = self._make_delivery(form)
        delivery.deliver(message)
