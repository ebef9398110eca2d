"""The state of a command in the protocol: its acknowledgements and its messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from amperage.client.blocks import MessageBlock, block_of
from amperage.client.errors import ClientError
from amperage.client.message import Message
from amperage.client.queue_acks import AckRules
from amperage.client.redelivery import Redelivery
from amperage.wire.header import Header


class StreamInbox:
    """The buffer for the messages of one subscription or query, until they are taken.

    Attributes:
        id: the subscription or query id.
        opening_request: the command that the inbox was created for, once it is sent.
        messages: the messages, oldest first.
        blocks: the messages and records as blocks, instead of `messages`; None if blocks are not
            used.
        append_message: appends a message.
        on_done: a callback for the bookmark of each processed message; None if these are not
            recorded.
        ack_rules: the rules for acknowledging queue messages.
        backlog: the maximum number of unacknowledged queue messages; None if the subscription is
            not to a queue.
        max_waiting: the number of waiting messages above which the subscription ends; None for no
            limit of its own.
        redelivery: the state of queue messages that may be delivered again.
        is_ended: no more messages will arrive.
        error: the reason for an unexpected end; None for an expected one.
    """

    __slots__ = (
        "ack_rules",
        "append_message",
        "backlog",
        "blocks",
        "error",
        "id",
        "is_ended",
        "max_waiting",
        "messages",
        "on_done",
        "opening_request",
        "redelivery",
    )

    def __init__(self, inbox_id: str) -> None:
        self.id = inbox_id
        self.opening_request: PendingRequest | None = None
        self.messages: deque[Message] = deque()
        self.blocks: deque[MessageBlock] | None = None
        self.append_message: Callable[[Message], None] = self.messages.append
        self.on_done: Callable[[str], None] | None = None
        self.ack_rules = AckRules()
        self.backlog: int | None = None
        self.max_waiting: int | None = None
        self.redelivery = Redelivery()
        self.is_ended = False
        self.error: ClientError | None = None

    @property
    def message_count(self) -> int:
        """The number of messages that wait to be taken."""
        # Another thread may take a block meanwhile.
        return len(self.messages) + sum(map(len, list(self.blocks or ())))

    @property
    def is_too_slow(self) -> bool:
        """Whether more messages wait than the subscription may have."""
        return self.max_waiting is not None and len(self.messages) > self.max_waiting

    def use_blocks(self) -> None:
        """Start to buffer messages as blocks."""
        blocks = self.blocks = deque()
        self.append_message = lambda message: blocks.append(block_of((message,)))

    def end(self, error: ClientError | None = None) -> None:
        """Mark the inbox as ended. Later reasons are ignored."""
        if not self.is_ended:
            self.is_ended = True
            self.error = error
            self.drop_leased()

    def is_leased(self, message: Message) -> bool:
        """Return whether a message is leased from a queue, which waits for its outcome.

        A lease without an end is not in the header (AMPS User Guide, LeasePeriod). Such a message
        has a bookmark, unlike the messages of subscriptions without a replay.
        """
        header = message.header
        if header.lease_period is not None:
            return True
        return self.backlog is not None and header.bookmark is not None

    def drop_leased(self) -> None:
        """Drop leased messages: the leases have ended, and the queue redelivers the messages."""
        self.redelivery.clear()
        for _ in range(len(self.messages)):
            try:
                message = self.messages.popleft()
            except IndexError:  # another thread has taken the rest
                return
            if not self.is_leased(message):
                self.messages.append(message)


class PendingRequest:
    """A command that waits for its acknowledgements.

    Attributes:
        command: the command's name.
        header: the command's header; for a subscription that has been changed since, the header of
            a command that would create the subscription in its current state.
        body: the command's body.
        command_id: the id in the acknowledgements.
        sequence: the number in conflated acknowledgements, for a publish with a sequence number.
        inbox: the inbox of the command's messages, for a subscription or query.
        opens_inbox: True if the command creates the inbox, False if it changes an existing one.
        acks: the acknowledgements received, by type.
        error: the reason for the failure of the command; None if it has not failed.
    """

    __slots__ = (
        "_awaited_acks",
        "_expected_acks",
        "_has_open_group",
        "acks",
        "body",
        "command",
        "command_id",
        "error",
        "header",
        "inbox",
        "opens_inbox",
        "sequence",
    )

    def __init__(
        self,
        header: Header,
        body: bytes,
        command_id: str,
        *,
        awaited_acks: frozenset[str],
        expected_acks: frozenset[str],
        inbox: StreamInbox | None = None,
    ) -> None:
        self.command = header.command
        self.header = header
        self.body = body
        self.command_id = command_id
        self.sequence = header.sequence
        self.inbox = inbox
        self.opens_inbox = inbox is not None and inbox.opening_request is None
        self.acks: dict[str, Header] = {}
        self.error: ClientError | None = None
        self._awaited_acks = awaited_acks
        self._expected_acks = expected_acks
        self._has_open_group = header.command == "sow"

    @property
    def is_done(self) -> bool:
        """Whether the answer is complete: all awaited acknowledgements, or an error."""
        return self.error is not None or self._awaited_acks <= self.acks.keys()

    @property
    def is_complete(self) -> bool:
        """Whether all acknowledgements and the end of the records, or an error, have arrived."""
        return self.error is not None or (
            not self._has_open_group and self._expected_acks <= self.acks.keys()
        )

    @property
    def command_name(self) -> str:
        """The command's name for people."""
        return "publish" if self.command == "p" else self.command

    def describe(self) -> str:
        """Return a short description of the command, for people."""
        header = self.header
        condition = f" where {header.filter}" if header.filter else ""
        return f"{self.command_name} {header.topic}{condition}"

    def succeed(self, ack: Header) -> None:
        """Use one acknowledgement in place of each awaited one that is missing."""
        for ack_type in self._awaited_acks:
            self.acks.setdefault(ack_type, ack)

    def end_group(self) -> None:
        """Record that the last record of a query has arrived."""
        self._has_open_group = False

    def is_delivered_ack(self, ack_type: str) -> bool:
        """Return whether the caller requested acknowledgements of a type between the messages."""
        return ack_type in self._expected_acks and ack_type not in self._awaited_acks
