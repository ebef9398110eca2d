"""A client's protocol that outlives its connections.

    commands ---> [ RecoveringProtocol ] ---> output     while there is a session
                    |  requests, inboxes
                    |  PublishStore, BookmarkStore       kept while there is none

`close(error)` says that a connection has ended, `logged_on` that a session has begun on the next.
Between the two, commands are taken and nothing is sent. With the next session comes, in this order:

1. the heartbeat, if it was asked for;
2. every subscription, with the same id, as it was last changed; those with a bookmark resume;
3. acknowledgements of queue messages that were given meanwhile;
4. every message that is not known to be persisted;
5. every command that has not been answered, so that whoever waits for it goes on waiting.

Two things cannot be repeated without harm and fail instead: a query that has handed out records,
and a deletion that was sent and not answered. Whatever arrives twice because of 2 or 4 has an
identity, publisher and sequence, by which the receiving side drops it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Unpack

from client.bookmarks import BookmarkStore, BookmarkTrail
from client.commands import AckType, DeleteOptions, PublishOptions, publish_header
from client.errors import ClientError, CommandError, ConnectionLostError, command_error
from client.message import Message
from client.pending import Inbox, Request
from client.protocol import TEMPLATES_KEPT, ClientProtocol, publish_command
from client.publish_store import PublishStore, StoredMessage
from client.resubscription import again, changed, is_change, places_none, replaces
from server.wire.framing import FrameReader, frame, frame_head
from server.wire.header import Header, encode_header

RefusalListener = Callable[[StoredMessage, CommandError], None]
"""Told about a published message that the server refuses, and why."""


class RecoveringProtocol(ClientProtocol):
    """One client, however many connections it takes.

    Args:
        store: keeps what is published until it is persisted.
        bookmarks: keeps where bookmark subscriptions stand.
        on_refused: told about each published message that the server refuses; a duplicate is none.

    Attributes:
        is_online: whether there is a session.
    """

    def __init__(
        self,
        store: PublishStore,
        bookmarks: BookmarkStore,
        on_refused: RefusalListener | None = None,
    ) -> None:
        super().__init__()
        self.is_online = False
        self._store = store
        self._bookmarks = bookmarks
        self._on_refused = on_refused
        self._heartbeat: int | None = None
        self._unsent: list[bytes] = []
        self._sent_deletions: set[str] = set()
        self._trails: dict[str, BookmarkTrail] = {}
        self._replacing: dict[str, BookmarkTrail | None] = {}  # by the command's id
        self._message_starts: dict[tuple[str, str], bytes] = {}

    @property
    def is_closed(self) -> bool:
        """Whether there will be no further session."""
        return self._closed is not None

    @property
    def end_reason(self) -> ClientError:
        """Why there will be no further session, once that is so."""
        return self._closed or ConnectionLostError("not connected")

    # The connections' comings and goings

    def close(self, error: ClientError | None = None) -> None:
        """End a connection.

        Args:
            error: why it ended; everything is kept for the next. None if the client itself closes,
                for good.
        """
        if error is None:
            super().close()
            self.is_online = False
        elif not self.is_closed:
            self._disconnected(error)

    def give_up(self, error: ClientError) -> None:
        """There will be no further connection: whatever waits gets the error."""
        super().close(error)

    def logged_on(self, answer: Header) -> None:
        """Begin a session on a new connection.

        Args:
            answer: the header of the logon's acknowledgement.
        """
        self.is_online = True
        last = answer.sequence or 0
        self._take_persisted(Header(command="ack", acks="persisted", status="success"), last)
        self._store.logged_on(last)
        unanswered = [it for it in self._requests.values() if not it.done and not _is_covered(it)]
        if self._heartbeat is not None and not self._awaits("heartbeat"):
            self.heartbeat(self._heartbeat)
        for inbox in self._inboxes.values():
            self._resubscribe(inbox)
        self.output += b"".join(self._unsent)
        self._unsent.clear()
        for message in self._store:
            self._emit_message(message)
        for request in unanswered:
            self._emit(request.header, request.body)

    def _awaits(self, command: str) -> bool:
        return any(it.command == command and not it.done for it in self._requests.values())

    def _disconnected(self, error: ClientError) -> None:
        self.is_online = False
        self.output.clear()
        self._reader = FrameReader()
        for request in list(self._requests.values()):
            if self._is_unrepeatable(request):
                self._abandon(request, error)

    def _is_unrepeatable(self, request: Request) -> bool:
        match request.command:
            case "logon":
                return not request.done
            case "sow_delete":
                return not request.done and request.command_id in self._sent_deletions
            case "sow":
                return request.done or (request.inbox is not None and bool(request.inbox.messages))
            case _:
                return False

    def _abandon(self, request: Request, error: ClientError) -> None:
        if not request.done:
            request.error = error
        if request.inbox is not None:
            self._close_inbox(request.inbox.id, error)
        self._requests.pop(request.command_id, None)
        self._sent_deletions.discard(request.command_id)

    # Subscriptions

    def heartbeat(self, interval: int) -> Request:
        """Exchange signs of life from now on, in this session and all that follow."""
        self.set_heartbeat(interval)
        return super().heartbeat(interval)

    def set_heartbeat(self, interval: int) -> None:
        """Exchange signs of life in all sessions that follow, every so many seconds."""
        self._heartbeat = interval

    def _open(
        self, header: Header, handed_out: Iterable[AckType], noted: Iterable[AckType] = ()
    ) -> Request:
        named, is_known = header.sub_id, header.sub_id in self._inboxes
        trail: BookmarkTrail | None = None
        if header.bookmark is not None and header.command != "sow":
            trail = self._bookmarks.trail(header.sub_id, header.bookmark)
            header.bookmark = trail.resume_from
            noted = (*noted, "persisted")
        request = super()._open(header, handed_out, noted)
        if request.inbox is not None and not is_known:
            self._follow(request.inbox, trail)
            if trail is not None and named is not None:  # nobody comes back to an id made up
                self._bookmarks.keep(named, trail)
        elif replaces(header):
            self._replacing[request.command_id] = trail
        return request

    def _follow(self, inbox: Inbox, trail: BookmarkTrail | None) -> None:
        """Begin to follow a subscription's bookmarks, or stop if it has none."""
        if trail is None:
            self._trails.pop(inbox.id, None)
            inbox.put = inbox.messages.append
        else:
            self._trails[inbox.id] = trail
            inbox.put = _followed(inbox, trail)

    def _close_inbox(self, inbox_id: str, error: ClientError | None = None) -> None:
        self._trails.pop(inbox_id, None)
        super()._close_inbox(inbox_id, error)

    def _resubscribe(self, inbox: Inbox) -> None:
        opening = inbox.opened_by
        if opening is None or opening.command == "sow" or places_none(opening.header):
            return
        trail = self._trails.get(inbox.id)
        header = again(
            opening.header,
            bookmark=None if trail is None else trail.resume_from,
            after_query=trail is not None and trail.has_records,
        )
        header.command_id = opening.command_id
        self._emit(header)

    # Publishing

    def publish(
        self, topic: str, body: bytes, *, delta: bool = False, **options: Unpack[PublishOptions]
    ) -> None:
        """Publish a message, and keep it until it is persisted.

        Raises:
            ValueError: the options have a sequence number; the publish store gives those.
        """
        self._check_open()
        if options:
            start = _message_start(_publish(topic, delta, options))
        else:
            start = self._plain_message_start(topic, delta)
        self._emit_message(self._store.add(start, body))

    def publish_all(self, topic: str, bodies: Iterable[bytes], *, delta: bool = False) -> None:
        """Publish many messages to one topic, and keep each until it is persisted."""
        self._check_open()
        start = self._plain_message_start(topic, delta)
        for body in bodies:
            self._emit_message(self._store.add(start, body))

    def confirmed_publish(
        self,
        topic: str,
        body: bytes,
        ack: AckType,
        *,
        delta: bool = False,
        **options: Unpack[PublishOptions],
    ) -> Request:
        """Publish a message, keep it until it is persisted, and wait for an acknowledgement."""
        self._check_open()
        header = _publish(topic, delta, options)
        command_id = header.command_id = self._next_id()
        header.acks = ",".join(dict.fromkeys((ack, "persisted")))
        message = self._store.add(encode_header(header)[:-1], body)
        header.sequence = message.sequence
        awaited = frozenset((ack,))
        request = Request(header, body, command_id, awaited=awaited, expected=awaited)
        self._requests[command_id] = self._numbered[message.sequence] = request
        self._emit_message(message)
        return request

    def sow_delete(self, topic: str, **options: Unpack[DeleteOptions]) -> Request:
        """Delete records.

        Raises:
            ValueError: the options have a sequence number; the publish store gives those.
        """
        if options.get("sequence") is not None:
            raise ValueError("the publish store numbers what is sent; leave out sequence")
        return super().sow_delete(topic, **options)

    def _plain_message_start(self, topic: str, delta: bool) -> bytes:
        key = (publish_command(delta), topic)
        start = self._message_starts.get(key)
        if start is None:
            if len(self._message_starts) >= TEMPLATES_KEPT:
                self._message_starts.clear()
            start = self._message_starts[key] = _message_start(_publish(topic, delta, {}))
        return start

    def _emit_message(self, message: StoredMessage) -> None:
        if self.is_online:
            self.output += frame_head(message.header, len(message.body))
            self.output += message.body

    # How the rest goes out

    def _emit(self, header: Header, body: bytes = b"") -> None:
        if not self.is_online and header.command != "logon":
            if header.command_id is None:  # no request remembers it
                self._unsent.append(frame(encode_header(header), body))
            return
        if header.command == "sow_delete" and header.command_id is not None:
            self._sent_deletions.add(header.command_id)
        super()._emit(header, body)

    # How answers come in

    def _take_ack(self, header: Header) -> None:
        request = self._requests.get(header.command_id or "")
        if header.acks == "persisted" and header.status != "failure":
            if header.sequence is not None:
                self._take_persisted(header, header.sequence)
            elif request is not None and request.inbox is not None and header.bookmark:
                self._note_safe_point(request.inbox, header.bookmark)
        super()._take_ack(header)
        if request is None:
            return
        if request.done:
            self._sent_deletions.discard(request.command_id)
        if header.acks == "processed" and request.error is None and is_change(request.header):
            self._note_change(request)

    def _take_conflated_ack(self, header: Header) -> None:
        if header.status == "failure" and header.sequence is not None:
            self._take_refusal(header.sequence, header)
        super()._take_conflated_ack(header)

    def _fail(self, request: Request, header: Header) -> None:
        if request.sequence is not None:
            self._take_refusal(request.sequence, header)
        self._replacing.pop(request.command_id, None)
        super()._fail(request, header)

    def _take_persisted(self, ack: Header, sequence: int) -> None:
        """Every message up to a number is persisted, and so has been processed."""
        self._store.persisted(sequence)
        covered = [number for number in self._numbered if number <= sequence]
        for number in covered:
            request = self._numbered[number]
            request.succeed(ack)
            self._settle(request)

    def _take_refusal(self, sequence: int, header: Header) -> None:
        message = self._store.refused(sequence)
        if message is not None and header.reason != "duplicate" and self._on_refused is not None:
            self._on_refused(message, command_error("publish", header.reason, header.detail))

    def _note_safe_point(self, inbox: Inbox, bookmark: str) -> None:
        trail = self._trails.get(inbox.id)
        if trail is not None:
            trail.persisted(bookmark)

    def _note_change(self, request: Request) -> None:
        """A change to subscriptions has taken effect: it is to be so on the next connection."""
        if request.inbox is not None and request.command_id in self._replacing:
            trail = self._replacing.pop(request.command_id)
            self._follow(request.inbox, trail)
            if trail is not None:
                self._bookmarks.keep(request.inbox.id, trail)
        for sub_id in (request.header.sub_id or "").split(","):
            inbox = self._inboxes.get(sub_id)
            if inbox is None or inbox.opened_by is None or inbox.opened_by is request:
                continue
            inbox.opened_by.header = changed(inbox.opened_by.header, request.header)


def _publish(topic: str, delta: bool, options: PublishOptions) -> Header:
    if options.get("sequence") is not None:
        raise ValueError("the publish store numbers the messages; leave out sequence")
    return publish_header(publish_command(delta), topic, options)


def _message_start(header: Header) -> bytes:
    header.acks = "persisted"
    return encode_header(header)[:-1]


def _is_covered(request: Request) -> bool:
    """Whether an unanswered request is sent again as something else: message or subscription."""
    if request.sequence is not None:
        return True
    return request.opens_inbox and request.command != "sow"


def _followed(inbox: Inbox, trail: BookmarkTrail) -> Callable[[Message], None]:
    """Takes the messages of a bookmark subscription: each once."""
    append = inbox.messages.append

    def put(message: Message) -> None:
        header = message.header
        if header.command == "group_end":
            trail.has_records = True
        elif header.bookmark is not None and not trail.is_new(header.bookmark):
            return
        append(message)

    return put
