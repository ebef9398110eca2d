"""The message path compiled, and as it is written: which one runs, and that they do the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from amperage.compiled_modules import COMPILED, LIBRARY
from tests.support.as_written import ENVIRONMENT, ROOT, running_as_written
from tests.support.long_form import ONLY_LONG
from tests.support.raw import RawPeer
from tests.support.server import CONFIGURATION, free_port, running_configuration

ELEMENTS: Final = """
<SOW>
  <Topic>
    <Name>kept</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>kept.sow</FileName>
  </Topic>
  <Topic>
    <Name>held</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
  <Topic>
    <Name>safe</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>safe.sow</FileName>
  </Topic>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>logged</Name><MessageType>json</MessageType></Topic>
  <Topic><Name>safe</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""
TOPICS: Final = ("plain", "kept", "held", "logged", "safe")
MESSAGES: Final = 60

MODELS: Final = (
    "engine/test_filtered_runs.py",
    "engine/test_applier_model.py",
    "engine/test_record_runs.py",
    "engine/test_repeated_publishes.py",
    "engine/test_repeated_subscribe.py",
    "engine/test_replay_model.py",
    "engine/test_routing_model.py",
    "storage/sow/test_record_batches.py",
)
"""Tests of the message path against models of it."""

SHOW: Final = (
    "import importlib, amperage.compiled_modules\n"
    "import server.engine.session\n"
    "for name in amperage.compiled_modules.COMPILED:\n"
    "    print(importlib.import_module(name).__file__)\n"
)
"""Prints where the modules of the message path have come from."""


def shown(root: Path, **environment: str) -> tuple[set[str], str]:
    """The endings of these files, and what is said on standard error."""
    ours = {name: text for name, text in os.environ.items() if name != "AMPERAGE_PURE"}
    done = subprocess.run(
        [sys.executable, "-c", SHOW],
        cwd=root,
        env=ours | {"PYTHONPATH": str(root)} | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    files = done.stdout.split()
    assert len(files) == len(COMPILED)
    assert all(Path(file).is_relative_to(root) for file in files)
    return {Path(file).suffix for file in files}, done.stderr


def test_it_runs_compiled_and_on_demand_as_it_is_written() -> None:
    assert shown(ROOT) == ({".so"}, "")
    assert shown(ROOT, AMPERAGE_PURE="1") == ({".py"}, "")
    assert shown(ROOT, AMPERAGE_PURE="0") == ({".so"}, "")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout in which everything is compiled."""
    root = tmp_path_factory.mktemp("checkout")
    for name in ("amperage", "server", "config_schema"):
        shutil.copytree(ROOT / name, root / name)
    shutil.copy(ROOT / "setup.py", root)
    return root


def test_what_has_changed_since_it_was_compiled_does_not_run(checkout: Path) -> None:
    """Nor does anything that was compiled with it; and it says so, and what to do."""
    source = checkout / "amperage" / "wire" / "frame_batches.py"
    written = source.read_text()
    source.touch()  # as changing branches does
    assert shown(checkout) == ({".so"}, "")
    source.write_text(written + "\n# changed\n")
    forms, said = shown(checkout)
    assert forms == {".py"}
    assert "has changed since it was compiled" in said
    assert "`make server` compiles it" in said
    assert shown(checkout, AMPERAGE_PURE="1") == ({".py"}, "")
    source.write_text(written)
    assert shown(checkout) == ({".so"}, "")


def test_what_nobody_has_compiled_runs_as_it_is_written(checkout: Path, tmp_path: Path) -> None:
    root = tmp_path / "checkout"
    shutil.copytree(checkout, root)
    for name in COMPILED:
        for path in root.joinpath(*name.split(".")).parent.glob("*.so"):
            if not path.with_name(path.name.partition(".")[0] + ".pyx").exists():
                path.unlink()
    next((root / "amperage").glob(f"{LIBRARY}__mypyc*.so")).unlink()
    assert shown(root) == ({".py"}, "")


@pytest.mark.parametrize("missing", [f"amperage/{LIBRARY}__mypyc*.so", "amperage/wire/framing*.so"])
def test_what_is_compiled_in_part_only_runs_as_it_is_written(checkout: Path, missing: str) -> None:
    """A build that was interrupted, or copied without some files: no traceback, and no mixture."""
    part = next(checkout.glob(missing))
    taken = part.rename(checkout / part.name)
    forms, said = shown(checkout)
    taken.rename(part)
    assert forms == {".py"}
    assert f"is compiled in part only ({part.name} is missing)" in said
    assert "`make server` compiles it" in said


def body(number: int) -> bytes:
    return b'{"id":%d,"qty":%d,"text":"%b"}' % (number % 7, number, b"x" * (number % 40))


def conversation(subscriber: RawPeer, publisher: RawPeer) -> list[tuple[dict[str, object], bytes]]:
    """What a subscriber and a publisher hear when every path of a message is walked."""
    for topic in TOPICS:
        subscriber.subscribe(topic, f"{topic}-all")
        subscriber.subscribe(topic, f"{topic}-some", filter="/qty % 3 = 0 OR /text LIKE 'x{30}'")
        subscriber.subscribe(topic, f"{topic}-more", filter="/id IN (1, 2)", opts="bookmark")
    for topic in TOPICS:
        for number in range(1, MESSAGES):  # a run, cut out of the stream in one go
            publisher.publish(topic, body(number), s=number, a="persisted")
        publisher.publish(topic, b'{"id":"a"}', x="one", s=MESSAGES)
        publisher.publish(topic, b"no message", s=MESSAGES + 1)
        publisher.send({"c": "delta_publish", "t": topic, "s": MESSAGES + 2}, b'{"id":1,"qty":0}')
        publisher.publish(topic, body(1), s=MESSAGES + 2)  # a repetition, where there is a log
    for number in range(MESSAGES):  # topics that take turns
        publisher.publish(TOPICS[number % len(TOPICS)], body(number), s=2 * MESSAGES + number)
    everything(publisher)  # acks of what is stored, at times that nobody knows
    heard = everything(subscriber)
    for topic in TOPICS[1:]:
        for options in ({"orderby": "/qty"}, {"filter": "/qty > 20", "top_n": 3}):
            subscriber.send({"c": "sow", "t": topic, "cid": topic, "qid": topic, "bs": 2} | options)
            heard += everything(subscriber)
    return heard


def everything(peer: RawPeer) -> list[tuple[dict[str, object], bytes]]:
    """All that a peer hears until an answer to something that it asks now."""
    peer.send({"c": "flush", "cid": "end", "a": "completed"})
    heard: list[tuple[dict[str, object], bytes]] = []
    while True:
        header, content = peer.receive()
        if header.get("cid") == "end":
            return heard
        header.pop("ts", None)
        heard.append((header, content))


def test_both_forms_say_the_same_on_the_wire(tmp_path: Path) -> None:
    """Byte for byte in bodies, and key for key in headers."""
    heard = []
    for name, run in (("compiled", running_configuration), ("written", running_as_written)):
        directory, port = tmp_path / name, free_port()
        directory.mkdir()
        text = CONFIGURATION.format(port=port, elements=ELEMENTS, transports="", level="info")
        with (
            run(directory, text, port) as server,
            server.log_on("subscriber") as subscriber,
            server.log_on("publisher") as publisher,
        ):
            heard.append(conversation(subscriber, publisher))
    assert len(heard[0]) > len(TOPICS) * MESSAGES
    assert heard[0] == heard[1]


@ONLY_LONG
def test_models_hold_as_it_is_written() -> None:
    """All other tests are of the compiled form."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"]
    done = subprocess.run(
        command + [f"tests/{model}" for model in MODELS],
        cwd=ROOT,
        env=os.environ | ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
