"""The operations on queues: transfer between instances, and messages that no consumer has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from server.admin.operations.operation import (
    AdminOperation,
    OperationError,
    OperationGroup,
    OperationParameters,
)
from server.expressions.errors import ExpressionError
from server.expressions.regex.budget import TooCostlyError
from server.queues.core import AckOutcome, UnmatchedError
from server.queues.core.states import AVAILABLE, BEHIND, DELAYED
from server.queues.topic.acknowledgement import AckTerms
from server.statistics.sources.texts import topic_ids
from server.storage.journal import JournalUnavailableError, JournalUnreadableError

if TYPE_CHECKING:
    from actions.services import ActionServices
    from server.queues.topic.acknowledgement import MessageSearchBatch
    from server.queues.topic.queue_topic import QueueTopic

_Process: TypeAlias = "Callable[[Sequence[int]], object]"
"""Processes the messages at some offsets; processed messages have left the queue."""

_TERMS: Final = AckTerms(AckOutcome.DONE, client=0)  # no session has this number
_UNLEASED: Final = frozenset((AVAILABLE, DELAYED, BEHIND))
"""The states of messages that this instance owns, and that no consumer has."""

_PARAMETERS: Final = frozenset(("to", "filter"))

_BATCH_SIZE: Final = 64
_PAUSE_S: Final = 0.001
"""Between two batches, for the processing of other messages."""


def queue_group(services: ActionServices) -> OperationGroup:
    """Return the operations on queues."""

    def queues_by_id() -> dict[str, QueueTopic]:
        queues = list(services.engine.topics.queues or ())
        ids = topic_ids((queue.name, queue.message_type.name) for queue in queues)
        return dict(zip(ids, queues, strict=True))

    async def transfer(enabled: bool, name: str, _parameters: OperationParameters) -> str:
        _find(queues_by_id(), name).shared_queue.set_proxied(enabled)
        return f"Proxied transfer of {name} is {'enabled' if enabled else 'disabled'}."

    async def purge(name: str, parameters: OperationParameters) -> str:
        queue = _find(queues_by_id(), name)
        remove = partial(queue.ack_handler.acknowledge_offsets, terms=_TERMS)
        count = await _process(services, queue, parameters, remove)
        return f"{count:,} messages of {name} have been removed."

    async def redrive(name: str, parameters: OperationParameters) -> str:
        queue = _find(queues_by_id(), name)
        dead_letters = queue.dead_letter_redrive
        count = await _process(
            services,
            queue,
            parameters,
            lambda offsets: dead_letters.redrive(offsets, _TERMS, lambda *_: True),
        )
        return f"{count:,} dead letters of {name} are back in their queues."

    async def move(name: str, parameters: OperationParameters) -> str:
        queue, target = (
            _find(queues_by_id(), name),
            _find_target(queues_by_id(), name, parameters["to"]),
        )
        count = await _process(
            services,
            queue,
            parameters,
            lambda offsets: queue.dead_letter_redrive.move(offsets, target, _TERMS),
        )
        return f"{count:,} messages of {name} have been moved to {target.name}."

    unleased = "messages that no consumer has"
    return OperationGroup(
        ("queues",),
        (
            AdminOperation(
                "enable_proxied_transfer",
                "claim messages of instances that cannot be reached",
                partial(transfer, True),
            ),
            AdminOperation(
                "disable_proxied_transfer",
                "leave messages to the instances that own them",
                partial(transfer, False),
            ),
            AdminOperation(
                "redrive",
                "return dead letters to the queues that they come from",
                redrive,
                audited_parameters=("filter",),
            ),
            AdminOperation(
                "move",
                f"move {unleased} to another queue",
                move,
                required_parameters=("to",),
                audited_parameters=("to", "filter"),
            ),
            AdminOperation("purge", f"remove {unleased}", purge, audited_parameters=("filter",)),
        ),
        lambda: dict.fromkeys(queues_by_id(), ""),
    )


def _find(queues: Mapping[str, QueueTopic], name: str) -> QueueTopic:
    queue = queues.get(name)
    if queue is None:
        raise OperationError(f"There is no queue {name!r} any more.")
    return queue


def _find_target(queues: Mapping[str, QueueTopic], name: str, target: str) -> QueueTopic:
    """Return the queue that messages are moved to, given by its id or its name.

    Raises:
        OperationError: there is none of the same message type, or it is the same queue.
    """
    message_type = queues[name].message_type.name
    for candidate_id, queue in queues.items():
        if target in (candidate_id, queue.name) and queue.message_type.name == message_type:
            if candidate_id == name:
                raise OperationError(f"{target} is the queue that the messages are in.")
            return queue
    raise OperationError(f"There is no queue {target!r} of the message type {message_type}.")


async def _process(
    services: ActionServices,
    queue: QueueTopic,
    parameters: OperationParameters,
    process: _Process,
) -> int:
    """Process the unleased messages that are in a queue now, in time slices.

    Returns:
        The number of messages that have left the queue.

    Raises:
        OperationError: the filter is invalid, or the log cannot be read or written.
    """
    if unknown := parameters.keys() - _PARAMETERS:  # a misspelled filter would select everything
        raise OperationError(f"Unknown parameters: {', '.join(sorted(unknown))}.")
    entries = queue.core.lifecycle.entries
    end = entries.end  # later messages stay
    count = 0
    try:
        for found in _find_messages(services, queue, parameters.get("filter", "")):
            for start in range(0, len(found.offsets), _BATCH_SIZE):
                offsets = [
                    offset
                    for offset in found.offsets[start : start + _BATCH_SIZE]
                    if offset < end and entries.state(offset) in _UNLEASED
                ]
                try:
                    if offsets:
                        process(offsets)
                finally:  # also of a batch that fails half-way
                    count += sum(entries.state(offset) not in _UNLEASED for offset in offsets)
                await asyncio.sleep(_PAUSE_S)
                while queue.ack_handler.is_log_backlogged:
                    await asyncio.sleep(_PAUSE_S)
    except ExpressionError as error:
        raise OperationError(f"The filter is invalid: {error}") from None
    except (
        JournalUnavailableError,
        JournalUnreadableError,
        UnmatchedError,
        TooCostlyError,
    ) as error:
        raise OperationError(f"{error}; {count:,} messages have left {queue.name}.") from None
    return count


def _find_messages(
    services: ActionServices, queue: QueueTopic, filter_text: str
) -> Iterator[MessageSearchBatch]:
    """Find the messages that match a filter, or all messages, in batches.

    Raises:
        ExpressionError: the filter is invalid.
        UnmatchedError: messages cannot be read at the moment; raised by the iterator.
    """
    if filter_text:
        return queue.ack_handler.find_by_filter(services.engine.filter_parser.parse(filter_text))
    return queue.ack_handler.find_all()
