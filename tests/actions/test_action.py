"""One action: order, conditions, failures, limits and loops."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from actions import action as limits
from actions.action import ActionPart
from actions.context import ActionContext
from actions.module import Step
from actions.step_options import StepOptions
from config_schema.catalogue import ModuleRule
from config_schema.spec import Options
from tests.actions.support import HERE, Bench, Use, echo, on_publish, publish
from tests.support.waiting import wait_until

NO_OPTIONS = StepOptions(Options(), ModuleRule("none", "has no options"))


class Waits(Step):
    """Waits until it is told to go on."""

    time_limit = 0.05

    async def run(self, context: ActionContext) -> None:
        await asyncio.Event().wait()


class Breaks(Step):
    """Has a defect."""

    async def run(self, context: ActionContext) -> None:
        raise ZeroDivisionError


def test_steps_run_in_order_and_pass_variables_on() -> None:
    bench = Bench()
    bench.add(
        None,
        ("amps-action-do-increment-counter", {"Key": "c{{X}}", "Value": "N"}),
        ("amps-action-do-increment-counter", {"Key": "c1", "Value": "N"}),
        (
            "amps-action-do-translate-data",
            {"Data": "{{N}}", "Value": "W", "Case": ["1=one", "2={{X}} two"], "Default": "many"},
        ),
        echo("{{N}} {{W}}"),
    )
    bench.perform(X=b"1")
    bench.perform(X=b"1")
    assert bench.echoes() == ["2 1 two", "4 many"]


TRANSLATIONS: list[tuple[dict[str, str | list[str]], bytes, str]] = [
    ({"Case": ["a=b", "a=c"]}, b"a", "b"),
    ({"Case": ["a = b"]}, b"a", "b"),
    ({"Case": ["a=b=c"]}, b"a", "b=c"),
    ({"Case": ["=empty"]}, b"", "empty"),
    ({"Case": ["a="]}, b"a", ""),
    ({"Case": ["a=b"]}, b"x", "x"),
    ({"Case": ["a=b"], "Default": ""}, b"x", ""),
    ({}, b"x", "x"),
]


@pytest.mark.parametrize(("cases", "data", "expected"), TRANSLATIONS)
def test_translations(cases: dict[str, str | list[str]], data: bytes, expected: str) -> None:
    bench = Bench()
    given = {"Data": "{{X}}", "Value": "W", **cases}
    bench.add(None, ("amps-action-do-translate-data", given), echo("<{{W}}>"))
    bench.perform(X=data)
    assert bench.echoes() == [f"<{expected}>"]


@pytest.mark.parametrize(("value", "runs_on"), [(b"yes", True), (b"no", False)])
def test_an_if_stops_the_action_in_silence(value: bytes, runs_on: bool) -> None:
    bench = Bench()
    condition: Use = ("amps-action-if-condition", {"Condition": "'{{X}}' = 'yes'"})
    bench.add(None, echo("before"), condition, echo("after"))
    bench.perform(X=value)
    assert bench.echoes() == (["before", "after"] if runs_on else ["before"])
    assert not bench.entries("29-0101")


FAILING: list[tuple[Use, str]] = [
    (("amps-action-do-execute-system", {"Command": "exit 3"}), "status 3"),
    (("amps-action-do-execute-system", {"Command": "kill -9 $$"}), "SIGKILL"),
    (("amps-action-do-execute-system", {"Command": "sleep 60", "Timeout": "10ms"}), "longer than"),
    (("amps-action-do-execute-system", {"Command": "true", "Timeout": "{{X}}"}), "Timeout: "),
    (publish("", "{}"), "invalid topic"),
    (publish("/AMPS/ClientStatus", "{}"), "the server's own"),
    (("amps-action-do-enable-transport", {"Transport": "{{X}}"}), "no transport named"),
    (("amps-action-do-remove-files", {"Age": "{{X}}", "Pattern": "nothing"}), "Age: "),
    (("amps-action-do-execute-event", {"EventVariable": "UNSET"}), "UNSET is empty"),
    (("amps-action-if-condition", {"Condition": "{{X}} {{X}}"}), "expected"),
    (("amps-action-if-file-system-usage", {"Path": "/", "GreaterThan": "{{X}}"}), "no percentage"),
    (("amps-action-if-file-system-usage", {"Path": "/none", "GreaterThan": "1%"}), "/none"),
    (
        (
            "amps-action-do-extract-values",
            {"MessageType": "json", "Data": "{}", "Value": "V=/a + {{X}} {{X}}"},
        ),
        "expected",
    ),
]


@pytest.mark.process
@pytest.mark.parametrize(("step", "reason"), FAILING)
def test_a_failing_step_stops_the_action_with_one_entry(step: Use, reason: str) -> None:
    bench = Bench()
    bench.add(None, echo("before"), step, echo("after"))
    bench.perform(X=b"soon")
    bench.perform(X=b"soon")
    (entry, _) = bench.entries("29-0101")
    assert bench.echoes() == ["before", "before"]
    assert (entry["module"], entry["location"]) == (step[0], HERE)
    assert reason in str(entry["reason"])


def test_a_step_has_only_so_much_time() -> None:
    bench = Bench()
    bench.add_parts(None, [ActionPart("waits", Waits(NO_OPTIONS), HERE)])
    bench.perform()
    assert "longer than 0.05 seconds" in str(bench.entries("29-0101")[0]["reason"])


def test_a_defect_costs_one_run_and_is_said() -> None:
    bench = Bench()
    bench.add_parts(None, [ActionPart("breaks", Breaks(NO_OPTIONS), HERE)])
    bench.post_all([{}] * 3)
    assert ["ZeroDivisionError" in str(entry["error"]) for entry in bench.entries("01-0004")] == [
        True
    ] * 3


def test_messages_do_not_wait_for_an_action() -> None:
    """While an action hangs, what is published is delivered, and other actions run."""
    bench = Bench()
    bench.add_parts(on_publish("orders"), [ActionPart("waits", Waits(NO_OPTIONS), HERE)])
    bench.add(on_publish("orders"), echo("{{AMPS_DATA}}"))
    subscriber, publisher = bench.core.log_on("s"), bench.core.log_on("p")
    subscriber.send({"c": "subscribe", "t": "orders", "sub_id": "1"})

    async def publish_some() -> None:
        for number in range(3):
            publisher.send({"c": "publish", "t": "orders"}, b"%d" % number)
        received = [body for _, body in subscriber.take_frames()]
        assert received[-3:] == [b"0", b"1", b"2"]
        assert not bench.entries("29-0100")

    bench.run(publish_some)
    assert bench.echoes() == ["0", "1", "2"]
    assert len(bench.entries("29-0101")) == 3


def test_a_full_queue_drops_runs_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_PENDING_RUNS", 5)
    bench = Bench()
    bench.add(None, echo("{{X}}"))
    bench.post_all([{"X": b"%d" % number} for number in range(8)])
    assert bench.echoes() == ["0", "1", "2", "3", "4"]
    assert [entry["waiting"] for entry in bench.entries("29-0107")] == [5]
    assert [entry["count"] for entry in bench.entries("29-0108")] == [3]


def test_a_queue_is_bounded_in_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_PENDING_RUN_BYTES", 100)
    bench = Bench()
    bench.add(None, echo("{{X}}"))
    sizes = (200, 10, 60, 60)
    bench.post_all([{"X": b"x" * size} for size in sizes])
    assert list(map(len, bench.echoes())) == [200]
    assert [entry["count"] for entry in bench.entries("29-0108")] == [3]


LOOPS: list[list[tuple[Use, Use]]] = [
    [(on_publish("one"), publish("one", "{{AMPS_DATA}}"))],
    [(on_publish("one"), publish("two", "{}")), (on_publish("two"), publish("one", "{}"))],
    [(on_publish("^o"), publish("other", "{}"))],
    [
        (on_publish("one"), ("amps-action-do-execute-event", {"Event": "again"})),
        (
            ("amps-action-on-execute-event", {"Event": "again"}),
            ("amps-action-do-execute-event", {"Event": "again"}),
        ),
    ],
]


@pytest.mark.parametrize("actions", LOOPS)
def test_a_publish_loop_is_cut(actions: list[tuple[Use, Use]]) -> None:
    bench = Bench()
    for on, step in actions:
        bench.add(on, step)
    publisher = bench.core.log_on()
    bench.run(lambda: publisher.send({"c": "publish", "t": "one"}, b"{}"))
    assert len(bench.entries("29-0106")) == 1
    assert len(bench.entries("29-0100")) == limits.MAX_ACTION_CHAIN_LENGTH + 1


def test_an_action_may_publish_again_and_again_from_outside() -> None:
    """A chain is what follows from each other, not what follows after."""
    bench = Bench()
    bench.add(on_publish("one"), publish("two", "{{AMPS_DATA}}"))
    publisher, subscriber = bench.core.log_on("p"), bench.core.log_on("s")
    subscriber.send({"c": "subscribe", "t": "two", "sub_id": "1"})
    subscriber.take_frames()

    def publish_many() -> None:
        for number in range(3 * limits.MAX_ACTION_CHAIN_LENGTH):
            publisher.send({"c": "publish", "t": "one"}, b"%d" % number)

    bench.run(publish_many)
    bodies = [body for _, body in subscriber.take_frames()]
    assert bodies == [b"%d" % number for number in range(3 * limits.MAX_ACTION_CHAIN_LENGTH)]
    assert not bench.entries("29-0106")


@pytest.mark.process
def test_closing_kills_what_runs(tmp_path: Path) -> None:
    """The command, and what it has started: nobody has the pipe open any more."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    bench = Bench()
    command = f"exec 3> {pipe}; echo begun >&3; sleep 600; true"
    action = bench.add(None, ("amps-action-do-execute-system", {"Command": command}), echo("after"))

    def reads(expected: bytes) -> bool:
        try:
            return os.read(reader, 100) == expected
        except BlockingIOError:  # somebody has it open, and has written nothing
            return False

    async def begin_and_close() -> None:
        action.post({})
        await asyncio.to_thread(wait_until, lambda: reads(b"begun\n"))
        action.close()

    bench.run(begin_and_close)
    wait_until(lambda: reads(b""))
    os.close(reader)
    assert bench.echoes() == []
