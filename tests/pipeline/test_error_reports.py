"""What a program prints when it fails: a few lines, of which the last one names the cause."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from amperage.client import Client
from pipeline.error_reports import cause_of
from pipeline.errors import UnfitError
from tests.pipeline.journals import journal
from tests.pipeline.quick_java import quick_java
from tests.pipeline.spark_commands import AT_START
from tests.pipeline.topics import uri
from tests.security.entitled import entitled_server
from tests.support.server import ROOT, environment, free_port

MAX_LINES: Final = 14

PROGRAM: Final = """
import sys
import pipeline

java, server, dead, journals, checkpoints = sys.argv[1:]
spark = pipeline.session(master="local[1]", conf={"spark.driver.extraJavaOptions": java})
amps = {"server": server, "topic": "log-told", "timeout": 1}

def read(schema=None, **options):
    reader = spark.read.format("amps").options(**(amps | options))
    (reader if schema is None else reader.schema(schema)).load().collect()

def write(**options):
    spark.range(1).write.format("amps").mode("append").options(**(amps | options)).save()

def follow(schema=None, **options):
    reader = spark.readStream.format("amps").options(**(amps | options))
    frame = (reader if schema is None else reader.schema(schema)).load()
    writer = frame.writeStream.format("noop").trigger(availableNow=True)
    writer.start(checkpointLocation=f"{checkpoints}/{len(done)}").awaitTermination()

done = []
for name, fail in {
    "no server": lambda: read(server=dead),
    "wrong topic": lambda: read(topic="nowhere"),
    "no permission": lambda: read(server=server.replace("ann@", "eve@"), bookmark="[0:0|1|]"),
    "unknown option": lambda: read(fliter="/a > 1"),
    "unfit message": lambda: read("id STRING", bookmark="[0:0|1|]"),
    "write without server": lambda: write(server=dead),
    "stream without server": lambda: follow(server=dead),
    "stream of a wrong topic": lambda: follow(topic="nowhere"),
    "stream with an unknown option": lambda: follow(fliter="/a > 1"),
    "stream of an unfit message": lambda: follow("id STRING"),
    "damaged journal": lambda: spark.read.format("amps-journal").load(journals).collect(),
    "failure of the program": lambda: 1 / 0,
}.items():
    print("\\n===", name, file=sys.stderr, flush=True)
    try:
        fail()
    except Exception:
        sys.excepthook(*sys.exc_info())
    done.append(name)
print("\\n=== end", file=sys.stderr, flush=True)
"""

CAUSES: Final = {
    "no server": "ServerUnreachableError: option server='tcp://127.0.0.1:",
    "wrong topic": "OptionError: option topic='nowhere': sow: invalid topic",
    "no permission": "NotPermittedError: option topic='log-told': subscribe: not entitled",
    "unknown option": "OptionError: option fliter: unknown; did you mean filter?",
    "unfit message": "UnfitError: schema: a message does not fit: Expected `str | null`, got",
    "write without server": "ServerUnreachableError: option server='tcp://127.0.0.1:",
    "stream without server": "ServerUnreachableError: option server='tcp://127.0.0.1:",
    "stream of a wrong topic": "OptionError: option topic='nowhere': it is not in the server's",
    "stream with an unknown option": "OptionError: option fliter: unknown; did you mean filter?",
    "stream of an unfit message": "UnfitError: schema: a message does not fit: Expected `str |",
    "damaged journal": "JournalDamageError: ",
    "failure of the program": "ZeroDivisionError: division by zero",
}

ELEMENTS: Final = """
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>^log-</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""

PERMISSIONS: Final = {
    "ann": {"logon": True, "topic": [{"topic": ".*", "read": True, "write": True}]},
    "eve": {"logon": True, "topic": []},
}


@pytest.mark.usefixtures("quick_python")
def test_a_program_that_fails_prints_its_own_lines_and_the_cause(tmp_path: Path) -> None:
    """Of what is not the pipeline's the traceback is as ever."""
    program = tmp_path / "pipeline" / "program.py"  # of the same name as the package
    program.parent.mkdir()
    program.write_text(PROGRAM)
    for name in ("journals", "server"):
        (tmp_path / name).mkdir()
    with journal(tmp_path / "journals") as writer:
        for _ in range(10):
            writer.publish("t", b"x" * 1000)
    damaged = tmp_path / "journals" / "TEST.0000000000.journal"
    with damaged.open("r+b") as file:
        file.seek(5000)
        file.write(b"\xff" * 200)
    with entitled_server(tmp_path / "server", PERMISSIONS, elements=ELEMENTS) as server:
        with Client() as client:
            client.connect(uri(server).replace("//", "//ann@"))
            client.logon()
            client.confirmed_publish("log-told", b'{"id":5}')
        ended = subprocess.run(
            [
                sys.executable,
                str(program),
                quick_java(),
                uri(server).replace("//", "//ann@"),
                f"tcp://127.0.0.1:{free_port()}/amps/json",
                str(tmp_path / "journals"),
                str(tmp_path),
            ],
            env=environment(PYTHONPATH=f"{AT_START}{os.pathsep}{ROOT}"),
            capture_output=True,
            check=False,
            text=True,
        )
    assert ended.returncode == 0, ended.stderr[-3000:]
    _, *sections = ended.stderr.split("\n=== ")
    printed = {name: text for name, _, text in (part.partition("\n") for part in sections)}
    assert [*printed] == [*CAUSES, "end"]
    for name, cause in CAUSES.items():
        lines = printed[name].strip().splitlines()
        assert any(line.startswith(cause) for line in lines), (name, lines)
        assert len(lines) <= MAX_LINES, (name, lines)
        assert f'File "{program}"' in printed[name]


def test_the_cause_of_an_error() -> None:
    for error, cause in (
        (UnfitError("schema: odd", 1), "UnfitError: schema: odd"),
        (
            Exception("Failed: pipeline.errors.OptionError: option x: bad\n SQLSTATE: 38000"),
            "OptionError: option x: bad",
        ),
        (Exception("OptionError: option x: bad"), None),
        (ValueError("pipeline"), None),
    ):
        assert cause_of(error) == cause
