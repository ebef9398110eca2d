"""SOW keys: from fields, and from chains of ids."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.message_types.base import MessageType
from server.message_types.registry import create
from server.storage.sow.keys.chain_file import ChainFile, DamagedChainFileError
from server.storage.sow.keys.chaining import ChainingKeys, chaining_options
from server.storage.sow.keys.errors import KeyModuleError
from server.storage.sow.keys.generators import CHAINING, create_key_generator
from server.storage.sow.keys.key_source import (
    NO_KEY,
    FieldKeys,
    KeyHash,
    KeyRefusedError,
    KeySource,
    key_hash,
)
from tests.storage.sow.support import Disk

VALUES = st.one_of(st.none(), st.text(max_size=5), st.integers(-99, 99))


def test_keys_never_change() -> None:
    """These keys are in files, and in applications: another way to make them would lose records."""
    assert KeyHash("orders").hash_values(["A1"]) == "17270058536773627396"
    assert KeyHash("orders").hash_values(["A1", None, 7]) == "13625791019977125260"
    assert KeyHash("other").hash_values(["A1"]) == "5387428199278410642"


def test_a_key_is_an_unsigned_number_of_64_bits() -> None:
    keys = [int(KeyHash("t").hash_values([number])) for number in range(1000)]
    assert all(0 <= key < 2**64 for key in keys)
    assert any(key >= 2**63 for key in keys)
    assert len(set(keys)) == len(keys)


@given(st.lists(VALUES, min_size=2, max_size=3), st.lists(VALUES, min_size=2, max_size=3))
def test_different_values_make_different_keys(one: list[object], other: list[object]) -> None:
    def texts(values: list[object]) -> list[str | None]:
        return [None if value in (None, "") else str(value) for value in values]

    same = texts(one) == texts(other)
    hashed = KeyHash("t")
    assert (hashed.hash_values(one) == hashed.hash_values(other)) is same  # type: ignore[arg-type]  # values


@pytest.mark.parametrize(("one", "other"), [('"5"', "5"), ("null", '""'), ("true", "1")])
def test_values_count_as_texts(one: str, other: str) -> None:
    keys = FieldKeys("t", create("json", "json", {}), [("id",)])
    assert keys.key(b'{"id":%b}' % one.encode(), None) == keys.key(
        b'{"id":%b}' % other.encode(), None
    )


def test_a_missing_field_makes_a_key_too() -> None:
    keys = FieldKeys("t", create("fix", "fix", {}), [("11",)])
    assert keys.key(b"35=D|11=A", None) == keys.key(b"", None) == KeyHash("t").hash_values([None])


@pytest.mark.parametrize(("key", "expected"), [("0", 0), (NO_KEY, 2**64 - 1), ("12", 12)])
def test_the_hash_of_a_generated_key_is_the_key(key: str, expected: int) -> None:
    assert key_hash(key) == expected


@pytest.mark.parametrize("key", ["ACC-1|AAPL", "007", "18446744073709551616", "", "\u0661"])
def test_the_hash_of_any_other_key_is_a_checksum(key: str) -> None:
    assert 0 <= key_hash(key) < 2**64
    assert str(key_hash(key)) != key


# ---- chains

Message = Mapping[str, object]


def chain(directory: Path, *, validation: bool = False, name: str = "t.chain") -> ChainingKeys:
    options = {
        "Primary": ["/id"],
        "Key": ["/parent", "/related"],
        "FileName": [str(directory / name)],
        "Validation": ["true" if validation else "false"],
    }
    library = f"/opt/amps/lib/{CHAINING.removesuffix('.so')}"  # as AMPS lets it be written
    made = create_key_generator(library, "orders", create("json", "json", {}), options)
    assert isinstance(made, ChainingKeys)
    return made


def keys_of(source: KeySource, *messages: Message) -> list[str]:
    return [source.key(json.dumps(message).encode(), None) for message in messages]


CHAIN: list[Message] = [
    {"id": 1},
    {"id": 2, "parent": 1},
    {"id": 3, "parent": 2},
    {"id": 4, "parent": 1},
    {"id": 2},
    {"parent": 3},
]


def test_all_messages_of_a_chain_have_the_key_of_its_first(tmp_path: Path) -> None:
    source = chain(tmp_path)
    assert set(keys_of(source, *CHAIN)) == {KeyHash("orders").hash_values(["1"])}
    assert keys_of(source, {"id": 9})[0] != keys_of(source, {"id": 1})[0]
    source.close()


def test_chains_outlive_a_restart_and_are_the_same_elsewhere(tmp_path: Path) -> None:
    source = chain(tmp_path)
    first = keys_of(source, *CHAIN)
    source.close()
    source = chain(tmp_path)
    assert keys_of(source, *reversed(CHAIN)) == first
    source.close()
    source = chain(tmp_path, name="elsewhere.chain")
    assert keys_of(source, *CHAIN) == first
    source.close()


def test_an_id_that_never_came_beside_its_predecessor_opens_a_new_chain(tmp_path: Path) -> None:
    source = chain(tmp_path)
    one, two, three = keys_of(source, {"id": 1}, {"id": 2}, {"id": 3, "parent": 2})
    assert one != two == three
    source.close()


def test_an_unknown_predecessor_heads_the_chain(tmp_path: Path) -> None:
    source = chain(tmp_path)
    assert set(keys_of(source, {"id": 2, "parent": 1}, {"id": 1}, {"id": 3, "parent": 2})) == {
        KeyHash("orders").hash_values(["1"])
    }
    source.close()


def test_a_message_of_two_chains_has_no_key(tmp_path: Path) -> None:
    source = chain(tmp_path)
    keys_of(source, {"id": 1}, {"id": 2})
    with pytest.raises(KeyRefusedError, match="the ids 2, 1 of the message belong to different"):
        keys_of(source, {"id": 2, "parent": 1})
    with pytest.raises(KeyRefusedError):
        keys_of(source, {"id": 3, "parent": 1, "related": 2})
    assert keys_of(source, {"id": 3})[0] == KeyHash("orders").hash_values(["3"])
    source.close()


def test_validation_refuses_what_seems_to_have_come_in_the_wrong_order(tmp_path: Path) -> None:
    lax, strict = chain(tmp_path), chain(tmp_path, validation=True, name="strict.chain")
    for source in (lax, strict):
        keys_of(source, {"id": 2})
    assert len(set(keys_of(lax, {"id": 2, "parent": 1}, {"id": 1}, {"id": 2}))) == 1
    with pytest.raises(KeyRefusedError, match="wrong order"):
        keys_of(strict, {"id": 2, "parent": 1})
    assert len(set(keys_of(strict, *CHAIN[2:3], {"id": 3, "parent": 2}))) == 1
    lax.close()
    strict.close()


def test_messages_without_ids_share_a_key(tmp_path: Path) -> None:
    source = chain(tmp_path)
    assert len(set(keys_of(source, {}, {"px": 1}, {"id": None}))) == 1
    source.close()


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"Key": ["/a", "/b"]}, "FileName"),
        ({"Key": ["/a"], "FileName": ["f"]}, "Secondary"),
        ({"Secondary": ["/a"], "FileName": ["f"]}, "Primary"),
        ({"Primary": ["/a", "/b"], "Key": ["/c"], "FileName": ["f"]}, "Primary"),
        ({"Key": ["/a", "b"], "FileName": ["f"]}, "Secondary"),
        ({"Key": ["/a", "/b"], "FileName": ["f"], "Validation": ["perhaps"]}, "Validation"),
        ({"Key": ["/a", "/b"], "FileName": ["f"], "Kez": ["/c"]}, "Kez"),
    ],
)
def test_wrong_options_are_named(options: Mapping[str, Sequence[str]], option: str) -> None:
    with pytest.raises(KeyModuleError) as refused:
        chaining_options(options)
    assert refused.value.option == option


def test_the_first_key_is_primary_if_nothing_says_so() -> None:
    options = chaining_options({"Key": ["/11", "/41"], "FileName": ["f"], "Validation": ["1"]})
    assert options == (("11",), (("41",),), "f", True)


def test_an_entry_cut_short_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "t.chain"
    file = ChainFile(path)
    file.append(["one"], 1)
    file.append(["two"], 2)
    file.close()
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        file = ChainFile(path)
        assert list(file.load()) == [("one", 1)][: length >= 35]
        file.append(["new"], 3)
        file.close()
        file = ChainFile(path)
        assert list(file.load())[-1] == ("new", 3)
        file.close()


def test_a_chain_file_is_committed_like_a_topic(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    file = ChainFile(tmp_path / "t.chain")
    file.append(["one"], 1)
    told: list[OSError | None] = []
    file.commit(disk.committer, told.append)
    assert not told
    disk.settle()
    assert told == [None]
    file.close()
    disk.close()


def test_a_damaged_chain_file_is_set_aside(tmp_path: Path) -> None:
    """What lies before the damage is in use, and all of the file is kept."""
    path = tmp_path / "t.chain"
    file = ChainFile(path)
    for number, text in enumerate(["one", "two", "three"], 1):
        file.append([text], number)
    file.close()
    content = bytearray(path.read_bytes())
    content[52] ^= 1
    for number in (1, 2):
        path.write_bytes(content)
        file = ChainFile(path)
        assert list(file.load()) == [("one", 1)]
        aside = tmp_path / f"t.chain.damaged-{number}"
        assert file.damage == (35, aside)
        assert aside.read_bytes() == content
        assert not file.is_intact
        file.close()
    file = ChainFile(path)
    assert file.is_intact
    file.close()


def test_what_is_no_chain_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.chain"
    path.write_bytes(b"x" * 40)
    with pytest.raises(DamagedChainFileError, match="does not begin as"):
        ChainFile(path)


# ---- other generators


@pytest.mark.parametrize("key", ["42", "x" * 65_535], ids=len)
def test_a_python_file_can_be_a_key_generator(tmp_path: Path, key: str) -> None:
    library = tmp_path / "constant_keys.py"
    library.write_text(
        "class Constant:\n"
        "    def __init__(self, key): self._key = key\n"
        "    def key(self, body, given): return self._key\n"
        "def create_key_generator(topic, message_type, options):\n"
        "    return Constant(options['Value'][0])\n"
    )
    made = create_key_generator(str(library), "t", _json(), {"Value": [key]})
    assert made.key(b"{}", None) == key


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ("1 / 0", r"the key generator failed: .*failing\.py:2: ZeroDivisionError"),
        ("42", "gave 42: expected a text"),
        ("None", "gave None: expected a text"),
        ("''", "gave '': expected a text"),
        ("'x' * 65_536", "gave 'xxx"),
        ("chr(0xDC00)", "gave '.udc00': expected a text"),
    ],
)
def test_a_library_that_fails_later_costs_the_message(
    tmp_path: Path, answer: str, complaint: str
) -> None:
    library = tmp_path / "failing.py"
    library.write_text(
        f"class Keys:\n    def key(self, body, given): return {answer}\n"
        "def create_key_generator(topic, message_type, options): return Keys()\n"
    )
    made = create_key_generator(str(library), "t", _json(), {})
    with pytest.raises(KeyRefusedError, match=complaint):
        made.key(b"{}", None)


@pytest.mark.parametrize(
    ("made", "complaint"),
    [
        ("1 / 0", "create_key_generator failed: .*ZeroDivisionError"),
        ("7", "create_key_generator returned int, which lacks key"),
    ],
)
def test_a_library_that_makes_no_generator_is_refused(
    tmp_path: Path, made: str, complaint: str
) -> None:
    library = tmp_path / "useless.py"
    library.write_text(f"def create_key_generator(topic, message_type, options): return {made}\n")
    with pytest.raises(KeyModuleError, match=complaint):
        create_key_generator(str(library), "t", _json(), {})


@pytest.mark.parametrize(
    ("library", "message"),
    [
        ("no_such_module_at_all", "cannot import"),
        ("missing.py", "there is no file"),
        ("libother.so", "is not a Python module"),
        ("json", "has no function create_key_generator"),
    ],
)
def test_a_library_that_makes_no_keys_is_refused(library: str, message: str) -> None:
    with pytest.raises(KeyModuleError, match=message) as refused:
        create_key_generator(library, "t", _json(), {})
    assert refused.value.option == "Library"


def test_a_library_that_fails_while_it_is_loaded_is_refused(tmp_path: Path) -> None:
    library = tmp_path / "failing_keys.py"
    library.write_text("1 / 0\n")
    with pytest.raises(KeyModuleError, match=r"failing_keys\.py:1: ZeroDivisionError"):
        create_key_generator(str(library), "t", _json(), {})


def _json() -> MessageType:
    return create("json", "json", {})
