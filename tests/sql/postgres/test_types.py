"""The table of types against the one that psycopg has."""

from __future__ import annotations

import psycopg
import pytest

from server.sql.postgres.types import TYPES, VARIABLE_LENGTH, PostgresType

UNKNOWN_TO_PSYCOPG = {"tid", "xid", "cid", "oidvector", "regproc", "unknown", "void"}
BASE_TYPES = [one for one in TYPES.values() if not one.name.startswith("_")]


@pytest.mark.parametrize("one", BASE_TYPES, ids=lambda one: one.name)
def test_oids(one: PostgresType) -> None:
    registry = psycopg.adapters.types
    found = registry.get(f'"{one.name}"' if one.name == "char" else one.name)
    if found is None:
        assert one.name in UNKNOWN_TO_PSYCOPG or one.name.startswith("reg")
        return
    assert (found.oid, found.array_oid) == (one.oid, one.array)


def test_arrays_know_their_elements() -> None:
    for one in BASE_TYPES:
        if one.array:
            array = TYPES[one.array]
            assert (array.element, array.length, array.array) == (one.oid, VARIABLE_LENGTH, 0)
    assert len({one.name for one in TYPES.values()}) == len(TYPES)
