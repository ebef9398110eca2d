"""A client's protocol that survives its connections.

    commands ---> [ RecoveringProtocol ] ---> output     while there is a session
                    |  requests, inboxes
                    |  PublishStore, BookmarkStore       kept while there is none

`close(error)` ends a connection, `begin_session` begins a session on the next. Between the two,
commands are accepted and nothing is sent. When a session begins, the protocol sends, in this order:

1. the heartbeat command, if heartbeats were requested;
2. acknowledgements of queue messages that were given meanwhile, or are not known to be stored,
   before the queue can deliver the messages again. Cancels are not sent: the messages have already
   gone back to the queue with the end of the lease;
3. every subscription, with the same id and its latest changes; those with a bookmark resume;
4. every message that is not known to be persisted;
5. every command that is not answered, so that its caller can continue to wait.

Two commands cannot be repeated safely, and fail instead: a query that has returned records, and a
deletion that was sent and not answered. Duplicates caused by 3 or 4 are dropped by the receiver,
which identifies them by publisher and sequence number. Messages of queues that were received but
not taken are dropped with the connection: the queue delivers them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from amperage.client.bookmarks import BookmarkStorage, BookmarkTrail, places_in
from amperage.client.commands import AckType, encoded
from amperage.client.errors import ClientError, NotConnectedError
from amperage.client.message import Message
from amperage.client.pending_requests import PendingRequest, StreamInbox
from amperage.client.protocol import ClientProtocol
from amperage.client.publish_store import PublishStorage
from amperage.client.queue_acks import UnconfirmedAcks
from amperage.client.resubscription import (
    changed,
    creates_none,
    is_change,
    replaces,
    resubscribe_command,
    returns_leases,
)
from amperage.client.sequence_numbers import AsyncRefusalListener, PublishSequence, numbers_in
from amperage.wire.framing import frame, frame_head
from amperage.wire.header import Header

_PLACES: Final = "places"
"""The option that adds the resume points of a subscription to acks; see `bookmarks`."""


class RecoveringProtocol(ClientProtocol):
    """The protocol of one client over all its connections.

    Args:
        store: stores published messages until they are persisted.
        bookmarks: stores the progress of bookmark subscriptions.
        on_refused: a callback for each published message that the server refuses, except
            duplicates; None makes `flush` raise an error for them.

    Attributes:
        is_online: whether there is a session.
        publish_sequence: the numbering of the published messages.
    """

    def __init__(
        self,
        store: PublishStorage,
        bookmarks: BookmarkStorage,
        on_refused: AsyncRefusalListener | None = None,
    ) -> None:
        self.publish_sequence = PublishSequence(store, on_refused)
        super().__init__(self.publish_sequence)
        self.is_online = False
        self._store = store
        self._bookmarks = bookmarks
        self._heartbeat_interval_s: int | None = None
        self._unconfirmed_acks = UnconfirmedAcks()
        self._sent_deletions: set[str] = set()
        self._trails: dict[str, BookmarkTrail] = {}
        self._replacement_trails: dict[str, BookmarkTrail | None] = {}  # by the command's id

    @property
    def end_reason_error(self) -> ClientError:
        """The reason why there will be no further session, once the client is closed."""
        return self._close_error or NotConnectedError("not connected")

    # Connections

    def close(self, error: ClientError | None = None) -> None:
        """End a connection.

        Args:
            error: the reason; the state is kept for the next connection. None if the client closes
                for good.
        """
        if error is None:
            super().close()
            self.is_online = False
        elif not self.is_closed:
            self._handle_disconnect(error)

    def close_permanently(self, error: ClientError) -> None:
        """Close the protocol for good, and pass the error to all requests and inboxes that wait."""
        super().close(error)

    def begin_session(self, answer: Header) -> None:
        """Begin a session on a new connection.

        Args:
            answer: the header of the logon's acknowledgement.
        """
        self.is_online = self._has_logged_on = True
        persisted, highest = numbers_in(answer)
        self._process_persisted(
            Header(command="ack", acks="persisted", status="success"), persisted
        )
        self._store.logged_on(persisted, highest)
        unanswered = [
            request
            for request in self._requests.values()
            if not request.is_done and not _is_covered(request)
        ]
        if self._heartbeat_interval_s is not None and not self._is_awaiting_answer("heartbeat"):
            self.heartbeat(self._heartbeat_interval_s)
        self.output += self._unconfirmed_acks.commands_to_resend()
        self.send_acks()
        for inbox in self._inboxes.values():
            self._resubscribe(inbox)
        for message in self._store:
            self.output += frame_head(message.header, len(message.body))
            self.output += message.body
        for request in unanswered:
            self._emit(request.header, request.body)

    def _handle_disconnect(self, error: ClientError) -> None:
        self.is_online = False
        self.output.clear()
        self._reader = self._make_reader()
        self._first_bytes = b""
        for inbox in self._inboxes.values():
            inbox.drop_leased()
        for request in list(self._requests.values()):
            if self._is_unrepeatable(request):
                self._abort_request(request, error)

    def _is_unrepeatable(self, request: PendingRequest) -> bool:
        match request.command:
            case "logon":
                return not request.is_done
            case "sow_delete":
                return not request.is_done and request.command_id in self._sent_deletions
            case "sow":
                return request.is_done or (
                    request.inbox is not None and bool(request.inbox.messages)
                )
            case _:
                return False

    def _abort_request(self, request: PendingRequest, error: ClientError) -> None:
        if not request.is_done:
            request.error = error
        if request.inbox is not None:
            self._close_inbox(request.inbox.id, error)
        self._requests.pop(request.command_id, None)
        self._sent_deletions.discard(request.command_id)

    # Subscriptions

    def heartbeat(self, interval: int) -> PendingRequest:
        """Start to exchange heartbeats every `interval` seconds, in this and later sessions."""
        self.set_heartbeat(interval)
        return super().heartbeat(interval)

    def set_heartbeat(self, interval: int) -> None:
        """Exchange heartbeats in all later sessions, every `interval` seconds."""
        self._heartbeat_interval_s = interval

    def _open_inbox(
        self,
        header: Header,
        delivered_acks: Iterable[AckType] | None,
        handled_acks: Iterable[AckType] = (),
    ) -> PendingRequest:
        named, is_known = header.sub_id, header.sub_id in self._inboxes
        trail: BookmarkTrail | None = None
        if header.bookmark is not None and header.command != "sow":
            trail = self._bookmarks.trail(header.sub_id, header.bookmark)
            header.bookmark = trail.resume_from
            header.short_options = ",".join(filter(None, (header.options, _PLACES)))
            header.long_options = None
            handled_acks = (*handled_acks, "persisted")
        request = super()._open_inbox(header, delivered_acks, handled_acks)
        if request.inbox is not None and not is_known:
            if trail is not None and named is not None:  # no later run resumes a generated id
                self._bookmarks.keep(named, trail)
            self._track_bookmarks(request.inbox, trail)
        elif replaces(header):
            self._replacement_trails[request.command_id] = trail
        return request

    def _track_bookmarks(self, inbox: StreamInbox, trail: BookmarkTrail | None) -> None:
        """Start to track a subscription's bookmarks, or stop if it has none."""
        if trail is None:
            self._trails.pop(inbox.id, None)
            inbox.append_message = inbox.messages.append
            inbox.on_done = None
        else:
            self._trails[inbox.id] = trail
            inbox.append_message = _followed(inbox, trail)
            inbox.on_done = trail.on_done

    def _close_inbox(self, inbox_id: str, error: ClientError | None = None) -> None:
        self._trails.pop(inbox_id, None)
        super()._close_inbox(inbox_id, error)

    def _resubscribe(self, inbox: StreamInbox) -> None:
        opening = inbox.opening_request
        if opening is None or opening.command == "sow" or creates_none(opening.header):
            return
        trail = self._trails.get(inbox.id)
        header = resubscribe_command(
            opening.header,
            bookmark=None if trail is None else trail.resume_from,
            after_query=trail is not None and trail.has_records,
        )
        header.command_id = opening.command_id
        self._emit(header)

    # Sending commands

    def _check_numbering_ready(self) -> None:
        """Do nothing: the store has the numbers, with or without a session."""

    def flush_acks(self) -> PendingRequest:
        """Flush acknowledgements as `Commands.flush_acks` does, across reconnections."""
        request = super().flush_acks()
        self._unconfirmed_acks.record_flush(request.command_id)
        return request

    def _emit(self, header: Header, body: bytes = b"") -> None:
        if header.command_id is None and not returns_leases(header):  # no request stores it
            self._emit_ack(header)
            return
        if not self.is_online and header.command != "logon":
            return
        if header.command == "sow_delete" and header.command_id is not None:
            self._sent_deletions.add(header.command_id)
        super()._emit(header, body)

    def _emit_ack(self, header: Header) -> None:
        command = frame(encoded(header))
        self._unconfirmed_acks.add(command, (header.bookmark or "").count(",") + 1)
        if self.is_online:
            self.output += command
        if self._unconfirmed_acks.needs_flush:
            self.flush_acks()

    def _emit_messages(self, frames: bytes) -> None:
        if self.is_online:
            super()._emit_messages(frames)

    # Receiving answers

    def _process_ack(self, header: Header) -> None:
        request = self._requests.get(header.command_id or "")
        super()._process_ack(header)
        if request is None:
            return
        if request.inbox is not None and header.status != "failure":
            self._record_resume_point(request, request.inbox, header)
        if request.is_done:
            self._sent_deletions.discard(request.command_id)
            self._unconfirmed_acks.record_flush_answer(
                request.command_id, is_safe=request.error is None
            )
        if header.acks == "processed" and request.error is None and is_change(request.header):
            self._record_change(request)

    def _process_logon_ack(self, answer: Header) -> None:
        """Do nothing: the shell calls `begin_session` when the session begins."""

    def _fail_request(self, request: PendingRequest, header: Header) -> None:
        self._replacement_trails.pop(request.command_id, None)
        super()._fail_request(request, header)

    def _record_resume_point(
        self, request: PendingRequest, inbox: StreamInbox, ack: Header
    ) -> None:
        """Record a resume point of a subscription from an ack, `persisted` or `processed`."""
        trail = self._replacement_trails.get(request.command_id, self._trails.get(inbox.id))
        if trail is None:
            return
        bookmark = ack.bookmark if ack.acks == "persisted" else None
        places = places_in(ack.options) if ack.acks in ("persisted", "processed") else ()
        if bookmark or places:
            trail.persisted(bookmark or None, places)

    def _record_change(self, request: PendingRequest) -> None:
        """Record a change of subscriptions that has taken effect, for the next connection."""
        if request.inbox is not None and request.command_id in self._replacement_trails:
            trail = self._replacement_trails.pop(request.command_id)
            if trail is not None:
                self._bookmarks.keep(request.inbox.id, trail)
            self._track_bookmarks(request.inbox, trail)
        for sub_id in (request.header.sub_id or "").split(","):
            inbox = self._inboxes.get(sub_id)
            if inbox is None or inbox.opening_request is None or inbox.opening_request is request:
                continue
            inbox.opening_request.header = changed(inbox.opening_request.header, request.header)


def _is_covered(request: PendingRequest) -> bool:
    """Return whether an unanswered request is sent again as a message or a subscription."""
    if request.sequence is not None:
        return True
    return request.opens_inbox and request.command != "sow"


def _followed(inbox: StreamInbox, trail: BookmarkTrail) -> Callable[[Message], None]:
    """Return a function that puts messages of a bookmark subscription into its inbox, each once."""
    append = inbox.messages.append

    def put(message: Message) -> None:
        header = message.header
        if header.command == "group_end":
            trail.has_records = True
        elif header.bookmark is not None and not trail.is_new(header.bookmark):
            return
        append(message)

    return put
