"""Replays of a finite part of the transaction log."""

from __future__ import annotations

from collections.abc import Iterator

from amperage.client import Client, Message
from amperage.client.block_client import BlockClient
from amperage.client.blocks import MessageBlock
from pipeline.amps.options import AmpsOptions


def replayed(
    client: Client,
    options: AmpsOptions,
    span: str,
    *,
    topic: str | None = None,
    command_options: str | None = None,
    top_n: int | None = None,
) -> Iterator[list[Message]]:
    """Read a part of the transaction log.

    Args:
        client: a session.
        options: the topic and the filter.
        span: the part, as `[begin:end)` with bookmarks; brackets include, parentheses do not.
        topic: another topic than the one in the options.
        command_options: the options field.
        top_n: the maximum number of messages.

    Returns:
        The messages, in batches as they arrive.
    """
    with client.subscribe(
        topic or options.read_topic,
        filter=options.filter,
        options=command_options,
        bookmark=span,
        top_n=top_n,
        acks=("completed",),
    ) as stream:
        is_complete = False
        while not is_complete:
            messages = stream.batch(options.timeout)
            is_complete = not messages or messages[-1].command == "ack"
            if messages and is_complete:
                messages.pop()
            if messages:
                yield messages


def read_log_blocks(
    client: BlockClient,
    options: AmpsOptions,
    span: str,
    *,
    command_options: str | None = None,
    top_n: int | None = None,
) -> Iterator[list[MessageBlock]]:
    """Read a part of the log in blocks, for readers of many messages; see `replayed`."""
    stream = client.replay_blocks(
        options.read_topic,
        span,
        filter=options.filter,
        options=command_options,
        top_n=top_n,
        acks=("completed",),
    )
    while blocks := stream.blocks(options.timeout):
        yield blocks
