"""A client that reads queries and replays as blocks; see `amperage.client.blocks`."""

# ruff: noqa: A002 - a filter is called filter
from __future__ import annotations

from typing import Unpack

from amperage.client.blocking import Client
from amperage.client.blocking_stream import MessageStream
from amperage.client.blocks import MessageBlock
from amperage.client.commands import AckType, QueryFields
from amperage.client.pending_requests import PendingRequest
from amperage.client.protocol import ClientProtocol
from amperage.client.time_limit import TimeLimit
from amperage.client.uri import ServerUri


class BlockStream(MessageStream):
    """The messages of a query or a replay, as blocks.

    The iterator returns only the requested acknowledgements.
    """

    def blocks(self, timeout: float | None = None) -> list[MessageBlock]:
        """Take all blocks that have arrived; if there are none, wait for the first.

        Args:
            timeout: seconds to wait; None waits without a limit.

        Returns:
            The blocks; an empty list if the stream has ended, or if an acknowledgement has arrived
            for the iterator.

        Raises:
            TimedOutError: nothing arrived in time.
            ConnectionLostError: the connection ended.
        """
        arrived = self._inbox.blocks
        assert arrived is not None  # noqa: S101 - see BlockClient
        if not arrived and not self._is_exhausted():
            self._owner.wait_for_message(self._has_message_or_ended, TimeLimit(timeout))
        if not arrived:
            self._is_exhausted()
        return [arrived.popleft() for _ in range(len(arrived))]

    def _has_message_or_ended(self) -> bool:
        return bool(self._inbox.blocks) or super()._has_message_or_ended()

    def _is_exhausted(self) -> bool:
        return not self._inbox.blocks and super()._is_exhausted()


class BlockClient(Client):
    """A `Client` that also reads blocks. Only one thread may use a `BlockStream`."""

    @property
    def server(self) -> ServerUri | None:
        """The server of the current or the last connection; None if there was none."""
        return self._uri

    def query_blocks(
        self,
        topic: str,
        **fields: Unpack[QueryFields],
    ) -> BlockStream:
        """Query a SOW topic and return a stream of blocks; see `sow`."""

        def query(protocol: ClientProtocol) -> PendingRequest:
            return protocol.deliver_as_blocks(protocol.sow(topic, **fields))

        return self._block_stream(self._execute_command(query, None))

    def replay_blocks(
        self,
        topic: str,
        bookmark: str,
        *,
        filter: str | None = None,
        options: str | None = None,
        top_n: int | None = None,
        acks: tuple[AckType, ...] = (),
    ) -> BlockStream:
        """Subscribe to a topic that is not a queue, from a bookmark on; see `subscribe`."""

        def subscribe(protocol: ClientProtocol) -> PendingRequest:
            return protocol.deliver_as_blocks(
                protocol.subscribe(
                    topic,
                    filter=filter,
                    options=options,
                    bookmark=bookmark,
                    top_n=top_n,
                    acks=acks,
                )
            )

        return self._block_stream(self._execute_command(subscribe, None))

    def _block_stream(self, request: PendingRequest) -> BlockStream:
        assert request.inbox is not None  # noqa: S101 - both commands have one
        return BlockStream(self._stream_owner, request.inbox)
