"""Finding and loading message types by name, custom ones too."""

from __future__ import annotations

from pathlib import Path as FilePath

import pytest

from config_schema.catalogue import ModuleKind
from config_schema.compile import message_types as compiled
from config_schema.standard_modules import STANDARD_MODULES
from server.message_types.base import MessageTypeError
from server.message_types.registry import BUILT_IN, DECLARED, MessageTypes, create

CUSTOM = '''
from server.message_types.base import Capabilities, MessageTypeError


class Lengths:
    """A body's only field is its length."""

    capabilities = Capabilities(delta=False, build=False, select=False)

    def __init__(self, name, unit):
        self.name = name
        self.unit = unit

    def extractor(self, paths):
        return lambda body: tuple(
            len(body) // self.unit if path == ("length",) else None for path in paths
        )

    def build(self, fields): ...
    def merge(self, stored, delta): ...
    def differ(self, previous, current, keep): ...
    def select(self, body, selection): ...
    def update(self, body, fields): ...


def create_message_type(name, options):
    unknown = set(options) - {"Unit"}
    if unknown:
        raise MessageTypeError(unknown.pop(), "no such option")
    return Lengths(name, int(options.get("Unit", ["1"])[0]))
'''


def test_the_configuration_language_knows_the_same_types() -> None:
    assert set(compiled.FORMATS) == set(BUILT_IN)
    assert set(STANDARD_MODULES[ModuleKind.MESSAGE_TYPE]) == set(BUILT_IN)
    assert set(compiled.BUILT_IN) == set(DECLARED)


def library(folder: FilePath, text: str) -> dict[str, str]:
    path = folder / "lengths.py"
    path.write_text(text)
    return {"lengths-module": str(path)}


def test_custom_type_from_a_file(tmp_path: FilePath) -> None:
    types = MessageTypes(library(tmp_path, CUSTOM))
    kilo = types.define("kilo", "lengths-module", {"Unit": ["1000"]})
    assert kilo.extractor([("length",), ("x",)])(b"." * 5000) == (5, None)
    assert types.get("kilo") is kilo
    assert types.define("bytes", "lengths-module", {}).extractor([("length",)])(b"12") == (2,)
    with pytest.raises(MessageTypeError, match="no such option"):
        types.define("bad", "lengths-module", {"Units": ["2"]})


def test_custom_type_from_an_importable_module(
    tmp_path: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lengths_for_a_test.py").write_text(CUSTOM)
    monkeypatch.syspath_prepend(tmp_path)
    made = create("n", "m", {}, libraries={"m": "lengths_for_a_test"})
    assert made.extractor([("length",)])(b"123") == (3,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no function create_message_type"),
        ("create_message_type = 5", "has no function create_message_type"),
        ("def create_message_type(name, options): return object()", "lacks name, capabilities, ex"),
        (CUSTOM.replace("Capabilities(", "dict("), "capabilities must be"),
        ("import a_module_that_is_not_there", "a_module_that_is_not_there"),
        ("def", "cannot load"),
    ],
)
def test_library_that_is_no_message_type(tmp_path: FilePath, text: str, message: str) -> None:
    with pytest.raises(MessageTypeError, match=message) as caught:
        create("mine", "lengths-module", {}, libraries=library(tmp_path, text))
    assert caught.value.option == "Library"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("./nowhere.py", "there is no file"),
        ("libtype.so", "is not a Python module"),
        ("no_such_module_anywhere", "cannot import"),
    ],
)
def test_library_that_is_not_there(path: str, message: str) -> None:
    with pytest.raises(MessageTypeError, match=message):
        create("mine", "m", {}, libraries={"m": path})


def test_declared_types_need_no_definition() -> None:
    types = MessageTypes()
    for name in DECLARED:
        assert types.get(name).name == name
        assert types.get(name) is types.get(name)


def test_a_declared_type_can_be_defined_anew() -> None:
    types = MessageTypes()
    types.define("json", "json", {"EarlyTerminationOptimization": ["false"]})
    assert types.get("json").extractor([("a",)])(b'{"a":1,"a":2}') == (2,)


@pytest.mark.parametrize("name", ["protobuf", "struct", "composite-local", "JSON", "jsn"])
def test_types_that_do_not_exist_by_themselves(name: str) -> None:
    with pytest.raises(MessageTypeError, match="is not defined"):
        MessageTypes().get(name)


def test_unknown_module() -> None:
    with pytest.raises(MessageTypeError, match="did you mean json") as caught:
        create("mine", "jsonn", {})
    assert caught.value.option == "Module"
