"""The messages of a queue as columns: their attributes, without their bodies.

Theory of operation. Every message that enters the queue gets the next offset, a number that is
never used again. Blocks have 1,024 offsets each, and one array per attribute, so that a message
costs some fifty bytes and no Python object. Columns that few queues need are allocated
when the first message needs them. A block is dropped when all its messages are gone: an old message
that no consumer acknowledges retains one block, and not all blocks since.

Operations on ranges of messages use slices where possible; a scalar access costs about as much as a
lookup in a dictionary.

Columns of full blocks may be moved to other storage (`ColumnStorage`). For their messages, only the
states and the index by bookmark stay in memory.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, Literal, Protocol, cast

from server.queues.core.bookmark_index import PublisherIndex
from server.queues.core.events import PublisherSequence
from server.queues.core.states import AVAILABLE, GONE, SENT, STATES

SHIFT: Final = 10
SIZE: Final = 1 << SHIFT
WITHIN: Final = SIZE - 1

_FEW: Final = 8
"""Messages up to which storing each value costs less than making arrays for slices."""
_MIN_PUBLISHERS: Final = 10_000
_PRESENT: Final = re.compile(b"[^" + bytes((GONE, SENT)) + b"]")
_AVAILABLE: Final = re.compile(re.escape(bytes((AVAILABLE,))) + b"*")


_MOVED_COLUMNS: Final = (
    "txids",
    "times",
    "publishers",
    "sequences",
    "expires",
    "priorities",
    "keys",
    "sow_keys",
)
"""Columns that are moved: all the large ones; they rarely change."""
_MAX_COLUMN_BYTES: Final = SIZE * 8
"""Bytes for the widest column."""


class ColumnStorage(Protocol):
    """Storage that columns can be moved to."""

    def allocate(self, size: int) -> memoryview | None:
        """Return uninitialized bytes, aligned for columns; None if there is no space."""

    def release(self, memory: memoryview) -> None:
        """Release bytes that are not needed any more, and that nothing refers to."""


class MessageTableBlock:
    """Consecutive offsets.

    Columns that every message fills are allocated at full length: growing arrays would leave
    behind holes of all sizes in memory. `states` is as long as the number of messages, and the
    other columns are as long as necessary.

    The columns of a block that was moved are views of memory elsewhere.

    Attributes:
        remaining_count: number of messages that are not GONE, including those still to be appended.
        states: see states.py.
        txids: their txids.
        times: when they were recorded, in microseconds since 1970.
        publishers: numbers of publishers.
        sequences: the publishers' sequence numbers.
        expires: when they expire, 0 for never.
        priorities: see `stored_priority`.
        keys: 64-bit hashes of keys, 0 for none.
        sow_keys: SOW keys, 0 for none.
        owners: numbers of instances, 0 for this one.
        moved_memory: the storage of the columns, if they were moved.
    """

    def __init__(self) -> None:
        self.remaining_count = SIZE
        self.states = bytearray()
        self.txids = array("Q", bytes(8 * SIZE))
        self.times = array("q", bytes(8 * SIZE))
        self.publishers = array("I", bytes(4 * SIZE))
        self.sequences = array("Q", bytes(8 * SIZE))
        self.expires = array("q")
        self.priorities = array("Q")
        self.keys = array("Q")
        self.sow_keys = array("Q")
        self.owners = array("H")
        self.moved_memory: memoryview | None = None

    def move_columns(self, storage: ColumnStorage) -> None:
        """Move the columns of a full block; without space, they stay."""
        names = [name for name in _MOVED_COLUMNS if len(getattr(self, name))]
        memory = self.moved_memory = storage.allocate(len(names) * _MAX_COLUMN_BYTES)
        if memory is None:
            return
        for number, name in enumerate(names):
            column: array[int] = getattr(self, name)
            column.frombytes(bytes((SIZE - len(column)) * column.itemsize))
            start = number * _MAX_COLUMN_BYTES
            view = memory[start : start + SIZE * column.itemsize]
            view[:] = memoryview(column).cast("B")
            setattr(self, name, view.cast(cast("Literal['Q']", column.typecode)))


class MessageTable:
    """All messages of a queue, by offset.

    Attributes:
        blocks: the blocks that have a message that is not GONE, by number.
        end: the offset of the next message to be appended.
        state_counts: number of messages by state; for GONE, all since the start.

    Args:
        storage: storage to move columns of full blocks to; None for none.
    """

    def __init__(self, storage: ColumnStorage | None = None) -> None:
        self._storage = storage
        self.blocks: dict[int, MessageTableBlock] = {}
        self.end = 0
        self.state_counts = [0] * STATES
        self._head = 0
        self._publishers: dict[int, PublisherIndex] = {}
        self._publisher_by_number: list[PublisherIndex] = []
        self._free_numbers: list[int] = []
        self._max_publishers = _MIN_PUBLISHERS  # limit of publishers before idle ones are dropped
        self._owners: list[str] = [""]
        self._owner_numbers: dict[str, int] = {"": 0}

    def append(
        self, txids: Sequence[int], times: Sequence[int], client: int, sequences: Sequence[int]
    ) -> int:
        """Append messages of one publisher; they are AVAILABLE until another state is set.

        They are in the queue from now on; messages that have left may be dropped at any time.

        Returns:
            The offset of the first.
        """
        first = self.end
        publisher = self._publishers.get(client) or self._new_publisher(client)
        publisher.extend(sequences, first)
        start, count = 0, len(txids)
        while start < count:
            start_within_block = self.end & WITHIN
            stop = min(count, start + SIZE - start_within_block)
            block = self.blocks.get(self.end >> SHIFT)
            if block is None:
                block = self._new_block()
            length = stop - start
            block.states.extend(bytes((AVAILABLE,)) * length)
            if length <= _FEW:
                within = start_within_block
                for index in range(start, stop):
                    block.txids[within] = txids[index]
                    block.times[within] = times[index]
                    block.publishers[within] = publisher.number
                    block.sequences[within] = sequences[index]
                    within += 1
            else:
                part = slice(start_within_block, start_within_block + length)
                block.txids[part] = _column("Q", txids[start:stop])
                block.times[part] = _column("q", times[start:stop])
                block.publishers[part] = array("I", (publisher.number,)) * length
                block.sequences[part] = _column("Q", sequences[start:stop])
            self.end += length
            start = stop
        self.state_counts[AVAILABLE] += count
        return first

    def _new_block(self) -> MessageTableBlock:
        """Add a block, and move the one before the last: it is not being filled any more."""
        number = self.end >> SHIFT
        block = self.blocks[number] = MessageTableBlock()
        full_block = self.blocks.get(number - 2)
        if full_block is not None and self._storage is not None:
            full_block.move_columns(self._storage)
        return block

    def _drop_block(self, number: int) -> None:
        block = self.blocks.pop(number)
        if block.moved_memory is not None and self._storage is not None:
            self._storage.release(block.moved_memory)

    def _new_publisher(self, client: int) -> PublisherIndex:
        """Register a publisher; drop idle publishers when there are many."""
        if len(self._publishers) >= self._max_publishers:
            for other in [each for each in self._publishers.values() if each.is_idle]:
                del self._publishers[other.client_hash]
                self._free_numbers.append(other.number)
            self._max_publishers = max(_MIN_PUBLISHERS, 2 * len(self._publishers))
        if self._free_numbers:
            publisher = PublisherIndex(client, self._free_numbers.pop())
            self._publisher_by_number[publisher.number] = publisher
        else:
            publisher = PublisherIndex(client, len(self._publisher_by_number))
            self._publisher_by_number.append(publisher)
        self._publishers[client] = publisher
        return publisher

    def find_publisher(self, client: int) -> PublisherIndex | None:
        """Return the publisher with a client hash, None if it is unknown or dropped as idle."""
        return self._publishers.get(client)

    def find(self, bookmark: PublisherSequence) -> int | None:
        """Return the offset of a message that has not left; None if there is none."""
        publisher = self._publishers.get(bookmark[0])
        if publisher is None:
            return None
        offset = publisher.find(bookmark[1])
        return None if offset is None or offset >> SHIFT not in self.blocks else offset

    def has_arrived(self, bookmark: PublisherSequence) -> bool:
        """Return whether the publisher's messages have arrived at least up to this one."""
        publisher = self._publishers.get(bookmark[0])
        return publisher is not None and bookmark[1] <= publisher.last_sequence

    def state(self, offset: int) -> int:
        """Return the state of any offset up to `end`, also of dropped blocks."""
        block = self.blocks.get(offset >> SHIFT)
        return GONE if block is None else block.states[offset & WITHIN]

    def set_state(self, offset: int, state: int) -> None:
        """Change the state of a message; use `remove` for GONE."""
        states = self.blocks[offset >> SHIFT].states
        self.state_counts[states[offset & WITHIN]] -= 1
        self.state_counts[state] += 1
        states[offset & WITHIN] = state

    def set_states(self, offsets: range, old_state: int, new_state: int) -> None:
        """Change the state of adjacent messages of one block that all are in state `old_state`."""
        states = self.blocks[offsets.start >> SHIFT].states
        start = offsets.start & WITHIN
        states[start : start + len(offsets)] = bytes((new_state,)) * len(offsets)
        self.state_counts[old_state] -= len(offsets)
        self.state_counts[new_state] += len(offsets)

    def remove(self, offset: int) -> None:
        """Change the state of a message to GONE, from any other state."""
        number = offset >> SHIFT
        block = self.blocks[number]
        within = offset & WITHIN
        state = block.states[within]
        self.state_counts[state] -= 1
        self.state_counts[GONE] += 1
        block.states[within] = GONE
        block.remaining_count -= 1
        publisher = self._publisher_by_number[block.publishers[within]]
        if not block.remaining_count:
            self._drop_block(number)
        publisher.removed_count += 1
        if publisher.removed_count > publisher.max_removed:
            self._compact_index(publisher)

    def remove_batch(self, offsets: Sequence[int], publisher: PublisherIndex, state: int) -> None:
        """Change messages of one publisher that are all in the same state to GONE."""
        first, last = _bounds(offsets)
        if first >> SHIFT == last >> SHIFT:
            self._remove_within(offsets[0] >> SHIFT, offsets)
        else:
            for number, block_offsets in groupby(offsets, _block_of):
                self._remove_within(number, list(block_offsets))
        self.state_counts[state] -= len(offsets)
        self.state_counts[GONE] += len(offsets)
        publisher.removed_count += len(offsets)
        if publisher.removed_count > publisher.max_removed:
            self._compact_index(publisher)

    def _remove_within(self, number: int, offsets: Sequence[int]) -> None:
        """Change messages of one block to GONE."""
        block = self.blocks[number]
        states = block.states
        if isinstance(offsets, range):
            start = offsets.start & WITHIN
            states[start : start + len(offsets)] = bytes((GONE,)) * len(offsets)
        else:
            for offset in offsets:
                states[offset & WITHIN] = GONE
        block.remaining_count -= len(offsets)
        if not block.remaining_count:
            self._drop_block(number)

    def _compact_index(self, publisher: PublisherIndex) -> None:
        """Drop removed messages from a publisher's index."""
        # SENT messages stay, even before the head
        oldest = 0 if self.state_counts[SENT] else self.head
        publisher.compact(self.is_present, oldest)

    def is_present(self, offset: int) -> bool:
        """Return whether a message is not GONE; for any offset up to `end`."""
        return self.state(offset) != GONE

    @property
    def head(self) -> int:
        """The offset of the oldest message in the queue; `end` if there is none."""
        blocks, end = self.blocks, self.end
        offset = self._head
        while offset < end:
            block = blocks.get(offset >> SHIFT)
            if block is not None:
                match = _PRESENT.search(block.states, offset & WITHIN)
                if match is not None:
                    offset = (offset & ~WITHIN) + match.start()
                    break
            offset = min((offset | WITHIN) + 1, end)
        self._head = offset
        return offset

    def next_available_range(self, offset: int, last: int) -> range:
        """Return the next range of adjacent available messages in one block.

        Args:
            offset: the first offset to examine.
            last: the last offset to examine.
        """
        offset = max(offset, self._head)
        while offset <= last:
            block = self.blocks.get(offset >> SHIFT)
            if block is not None:
                start = block.states.find(AVAILABLE, offset & WITHIN)
                if start >= 0:
                    match = _AVAILABLE.match(block.states, start)
                    base = offset & ~WITHIN
                    stop = min(base + (match.end() if match else start), last + 1)
                    return range(base + start, max(stop, base + start))
            offset = (offset | WITHIN) + 1
        return range(0)

    def offsets_in(self, state: int, offset: int, last: int) -> Iterator[int]:
        """Yield the offsets of messages in a state, from `offset` to `last`, both included."""
        offset = max(offset, self._head)
        while offset <= last:
            block = self.blocks.get(offset >> SHIFT)
            within = block.states.find(state, offset & WITHIN) if block is not None else -1
            if within < 0:
                offset = (offset | WITHIN) + 1
                continue
            offset = (offset & ~WITHIN) + within
            if offset > last:
                return
            yield offset
            offset += 1

    def offsets(self) -> Iterator[int]:
        """Yield the offsets of all messages in the queue, without later arrivals."""
        offset, end = self.head, self.end
        while offset < end:
            if self.state(offset) not in (GONE, SENT):
                yield offset
            offset += 1

    # attributes of a message that is not GONE

    def txid(self, offset: int) -> int:
        """Return its txid."""
        return self.blocks[offset >> SHIFT].txids[offset & WITHIN]

    def txids(self, offsets: Sequence[int]) -> Sequence[int]:
        """Return the txids of messages; those of a range are in one block."""
        if isinstance(offsets, range):
            start = offsets.start & WITHIN
            block = self.blocks[offsets.start >> SHIFT]
            column = block.txids[start : start + len(offsets)]
            # a copy of moved columns: their memory may be released
            return column if block.moved_memory is None else column.tolist()
        blocks = self.blocks
        return [blocks[offset >> SHIFT].txids[offset & WITHIN] for offset in offsets]

    def recorded_at(self, offset: int) -> int:
        """Return when it was recorded, in microseconds since 1970."""
        return self.blocks[offset >> SHIFT].times[offset & WITHIN]

    def bookmark(self, offset: int) -> PublisherSequence:
        """Return its bookmark."""
        block = self.blocks[offset >> SHIFT]
        within = offset & WITHIN
        return self._publisher_by_number[block.publishers[within]].client_hash, block.sequences[
            within
        ]

    def bookmarks(self, offsets: Iterable[int]) -> list[PublisherSequence]:
        """Return the bookmarks of messages."""
        return [self.bookmark(offset) for offset in offsets]

    def expires_at(self, offset: int) -> int:
        """Return when it expires, 0 for never."""
        return _get(self.blocks[offset >> SHIFT].expires, offset)

    def priority(self, offset: int) -> int:
        """Return its priority; see `stored_priority`."""
        return _get(self.blocks[offset >> SHIFT].priorities, offset)

    def key(self, offset: int) -> int:
        """Return the hash of its key, 0 for none."""
        return _get(self.blocks[offset >> SHIFT].keys, offset)

    def sow_key(self, offset: int) -> int:
        """Return its SOW key, 0 for none."""
        return _get(self.blocks[offset >> SHIFT].sow_keys, offset)

    def owner(self, offset: int) -> str:
        """Return the instance that owns it, empty for this one."""
        return self._owners[_get(self.blocks[offset >> SHIFT].owners, offset)]

    def set_expires_at(self, offset: int, expires_at: int) -> None:
        """Set the expiration time of a message."""
        _set(self.blocks[offset >> SHIFT].expires, offset, expires_at)

    def set_priority(self, offset: int, priority: int) -> None:
        """Set the priority of a message."""
        _set(self.blocks[offset >> SHIFT].priorities, offset, priority)

    def set_key(self, offset: int, key: int) -> None:
        """Set the hash of the key of a message."""
        _set(self.blocks[offset >> SHIFT].keys, offset, key)

    def set_sow_key(self, offset: int, sow_key: int) -> None:
        """Set the SOW key of a message."""
        _set(self.blocks[offset >> SHIFT].sow_keys, offset, sow_key)

    def set_owner_and_state(self, offsets: range, owner: str, state: int) -> None:
        """Set the owner and state of the latest messages, all AVAILABLE before."""
        number = self._number_of(owner)
        start = offsets.start
        while start < offsets.stop:
            block, within = self.blocks[start >> SHIFT], start & WITHIN
            count = min(offsets.stop, (start | WITHIN) + 1) - start
            owners = block.owners
            owners.frombytes(bytes((within - len(owners)) * owners.itemsize))
            owners.extend([number] * count)
            block.states[within : within + count] = bytes((state,)) * count
            start += count
        self.state_counts[AVAILABLE] -= len(offsets)
        self.state_counts[state] += len(offsets)

    def set_owner(self, offset: int, owner: str) -> None:
        """Set the instance that owns a message, empty for this one."""
        _set(self.blocks[offset >> SHIFT].owners, offset, self._number_of(owner))

    def _number_of(self, owner: str) -> int:
        number = self._owner_numbers.get(owner)
        if number is None:
            number = self._owner_numbers[owner] = len(self._owners)
            self._owners.append(owner)
        return number


def _column(typecode: Literal["Q", "q"], values: Sequence[int]) -> array[int]:
    return array(typecode, values if isinstance(values, list) else list(values))


def _bounds(offsets: Sequence[int]) -> tuple[int, int]:
    """Return the least and the greatest offset."""
    if isinstance(offsets, range):
        return offsets[0], offsets[-1]
    return min(offsets), max(offsets)


def _block_of(offset: int) -> int:
    return offset >> SHIFT


def _get(column: array[int], offset: int) -> int:
    within = offset & WITHIN
    return column[within] if within < len(column) else 0


def _set(column: array[int], offset: int, value: int) -> None:
    """Set a value, and extend the column with zeros up to it if necessary."""
    within = offset & WITHIN
    missing = within + 1 - len(column)
    if missing > 0:
        column.frombytes(bytes(missing * column.itemsize))
    column[within] = value
