"""Sampled stacks, as py-spy writes them, count for the stage and the function that was in them."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.stages import OTHER, Stages, compiled_names, read

NAMES = compiled_names(
    [
        "wire.framing",
        "storage.sow.record_table",
        "topics.topic",
        "topics.subscriptions.delivery.outbox",
    ]
)
LIBRARY = "(server/message_path__mypyc.cpython-311-x86_64-linux-gnu.so)"


def _read(*lines: str) -> Stages:
    return read(lines, NAMES)


@pytest.mark.parametrize(
    ("frame", "stage", "function"),
    [
        (
            "Scheduler._turn (server/engine/scheduler.py:242)",
            "scheduler, sessions",
            "engine.scheduler: Scheduler._turn",
        ),
        (
            "read (/srv/server/message_types/json_fields.pyx:126)",
            "fields of bodies",
            "message_types.json_fields: read",
        ),
        (
            "synchronise (server/storage/journal/commit_io.c:1304)",
            "the log",
            "storage.journal.commit_io: synchronise",
        ),
        (
            f"CPyDef_framing___FrameReader___feed {LIBRARY}",
            "cutting frames, headers",
            "wire.framing: FrameReader.feed",
        ),
        (
            f"CPyDef_framing___FrameReader____split {LIBRARY}",
            "cutting frames, headers",
            "wire.framing: FrameReader._split",
        ),
        (
            f"CPyDef_sow___record_table___RecordTable___put {LIBRARY}",
            "records",
            "storage.sow.record_table: RecordTable.put",
        ),
        (
            f"CPyDef_topics___topic___Topic___publish {LIBRARY}",
            "topics",
            "topics.topic: Topic.publish",
        ),
        (
            f"CPyDef_outbox___Outbox___flush {LIBRARY}",
            "sending",
            "topics.subscriptions.delivery.outbox: Outbox.flush",
        ),
        ("_run (server/app/launch.py:181)", OTHER, "app.launch: _run"),
    ],
)
def test_a_frame_of_ours(frame: str, stage: str, function: str) -> None:
    found = _read(
        f"main (server/cli/amp_server.py:38);{frame};PyObject_Call (libpython3.11.so.1.0) 3"
    )
    assert found.samples == Counter({stage: 3})
    assert found.functions == Counter({(stage, function): 3})


def test_the_innermost_of_ours_counts() -> None:
    inner = f"CPyDef_outbox___Outbox___flush {LIBRARY}"
    found = _read(f"Turns._turn (server/engine/scheduler.py:242);{inner};writev (libc.so.6) 2")
    assert found.samples == found.calls == Counter({"sending": 2})


def test_stacks_without_ours_are_the_event_loop() -> None:
    assert _read("uv_run (core.c:452);read (libc.so.6) 5").samples == Counter({OTHER: 5})


@pytest.mark.parametrize(
    "waiting",
    [
        "uv__io_poll (linux.c:1430);epoll_pwait (libc.so.6)",
        "run (server/log/writer.py:60);PyThread_acquire_lock_timed (libpython.so);0x7f (libc)",
    ],
)
def test_who_waits_is_not_counted(waiting: str) -> None:
    assert _read(f"thread_run (libpython3.11.so.1.0);{waiting} 9").samples.total() == 0
