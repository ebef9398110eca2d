"""What the protocol keeps for a command: its acknowledgements, and the messages that it brings."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from amperage.client.blocks import Block, block_of
from amperage.client.errors import ClientError
from amperage.client.message import Message
from amperage.client.queue_acks import AckRules
from amperage.client.redelivery import Redelivery
from amperage.wire.header import Header


class Inbox:
    """The messages of one subscription or query that have arrived and were not taken yet.

    Attributes:
        id: the subscription or query id.
        opened_by: the command that it was made for, once that is sent.
        messages: what arrived, oldest first.
        blocks: messages and records that arrived, if they are taken as blocks, in place of
            `messages`; None otherwise.
        put: takes a message that arrives.
        on_done: takes the bookmark of a message that was dealt with; None if that is not recorded.
        ack_rules: how messages that come from queues are acknowledged.
        backlog: how many messages of queues may be held; None for a subscription to no queue.
        redelivery: what is known of messages of queues that may come again.
        ended: nothing more will arrive.
        error: why it ended, if not as wished.
    """

    __slots__ = (
        "ack_rules",
        "backlog",
        "blocks",
        "ended",
        "error",
        "id",
        "messages",
        "on_done",
        "opened_by",
        "put",
        "redelivery",
    )

    def __init__(self, inbox_id: str) -> None:
        self.id = inbox_id
        self.opened_by: Request | None = None
        self.messages: deque[Message] = deque()
        self.blocks: deque[Block] | None = None
        self.put: Callable[[Message], None] = self.messages.append
        self.on_done: Callable[[str], None] | None = None
        self.ack_rules = AckRules()
        self.backlog: int | None = None
        self.redelivery = Redelivery()
        self.ended = False
        self.error: ClientError | None = None

    @property
    def waiting(self) -> int:
        """How many messages wait to be taken."""
        # Another thread may take a block meanwhile.
        return len(self.messages) + sum(map(len, list(self.blocks or ())))

    def take_blocks(self) -> None:
        """From now on, have messages as blocks."""
        blocks = self.blocks = deque()
        self.put = lambda message: blocks.append(block_of((message,)))

    def end(self, error: ClientError | None = None) -> None:
        """Expect nothing more. The first reason stands."""
        if not self.ended:
            self.ended = True
            self.error = error
            self.drop_leased()

    def leases(self, message: Message) -> bool:
        """Whether a message comes from a queue that waits to hear what became of it.

        A lease without an end is not in the header (AMPS User Guide, LeasePeriod), but then the
        message has its bookmark, which others of a subscription without a replay do not have.
        """
        header = message.header
        if header.lease_period is not None:
            return True
        return self.backlog is not None and header.bookmark is not None

    def drop_leased(self) -> None:
        """Let go of messages that the queue gives to others now, since our leases have ended."""
        self.redelivery.forget()
        for _ in range(len(self.messages)):
            try:
                message = self.messages.popleft()
            except IndexError:  # another thread has taken the rest
                return
            if not self.leases(message):
                self.messages.append(message)


class Request:
    """A command on its way to its acknowledgements.

    Attributes:
        command: the command's name.
        header: the command's header; for a subscription that has been changed since, the header of
            a command that would place it as it is now.
        body: the command's body.
        command_id: what the acknowledgements refer to.
        sequence: the number that conflated acknowledgements refer to, for a publish that has one.
        inbox: where the command's messages go, for a subscription or query.
        opens_inbox: whether the inbox is new with this command, or one that it changes.
        acks: the acknowledgements that have come, by type.
        error: why the command failed.
    """

    __slots__ = (
        "_awaited",
        "_expected",
        "_group_open",
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
        awaited: frozenset[str],
        expected: frozenset[str],
        inbox: Inbox | None = None,
    ) -> None:
        self.command = header.command
        self.header = header
        self.body = body
        self.command_id = command_id
        self.sequence = header.sequence
        self.inbox = inbox
        self.opens_inbox = inbox is not None and inbox.opened_by is None
        self.acks: dict[str, Header] = {}
        self.error: ClientError | None = None
        self._awaited = awaited
        self._expected = expected
        self._group_open = header.command == "sow"

    @property
    def done(self) -> bool:
        """Whether the answer is there."""
        return self.error is not None or self._awaited <= self.acks.keys()

    @property
    def complete(self) -> bool:
        """Whether nothing more is to come: each acknowledgement, and the end of the records."""
        return self.error is not None or (
            not self._group_open and self._expected <= self.acks.keys()
        )

    @property
    def command_name(self) -> str:
        """The command's name as people call it."""
        return "publish" if self.command == "p" else self.command

    def describe(self) -> str:
        """The command in short, for people."""
        header = self.header
        wanted = f" where {header.filter}" if header.filter else ""
        return f"{self.command_name} {header.topic}{wanted}"

    def succeed(self, ack: Header) -> None:
        """Take one acknowledgement for each that is waited for."""
        for ack_type in self._awaited:
            self.acks.setdefault(ack_type, ack)

    def group_ended(self) -> None:
        """The last record of a query has come."""
        self._group_open = False

    def handed_out(self, ack_type: str) -> bool:
        """Whether acknowledgements of a type go to the inbox, because the caller asked for them."""
        return ack_type in self._expected and ack_type not in self._awaited
