"""A store as a dictionary, and sequences of changes that can be made to both."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

from server.storage.sow.records import Record
from server.storage.sow.store import RecordStore

KEYS = 60


class Step(NamedTuple):
    """One change: a record put under its key, or the key deleted if it has no body."""

    key: str
    record: Record | None
    sequence: int


def steps(seed: int) -> Iterator[Step]:
    """An endless sequence of changes, the same for the same seed; sequences count from 1."""
    source = random.Random(seed)
    for sequence in range(1, 1 << 62):
        key = f"key-{source.randrange(KEYS)}"
        if source.random() < 0.25:
            yield Step(key, None, sequence)
            continue
        body = source.randbytes(8) * (source.randrange(3000) // 8)
        record = Record(
            key,
            body,
            "t" if source.random() < 0.5 else "other",
            timestamp=sequence * 10,
            expires=source.choice((0, sequence * 20)),
            sequence=sequence,
            correlation_id=source.choice(("", "c\udcff")),
            bookmark=source.choice(("", "5|9|")),
        )
        yield Step(key, record, sequence)


def apply_to_model(model: dict[str, Record], step: Step) -> None:
    if step.record is not None:
        model[step.key] = step.record
    else:
        model.pop(step.key, None)


def apply_to_store(store: RecordStore, step: Step) -> None:
    if step.record is not None:
        store.put(step.key, step.record)
    elif store.find_row(step.key) is not None:
        store.delete(step.key, step.sequence)


def state_of(store: RecordStore) -> dict[str, Record]:
    return {identity: store.read_record(row) for identity, row in store.identities()}


def model_after(seed: int, sequence: int) -> dict[str, Record]:
    """The state after the change with a sequence."""
    model: dict[str, Record] = {}
    for step in steps(seed):
        if step.sequence > sequence:
            return model
        apply_to_model(model, step)
    raise AssertionError("the sequence of steps has no end")
