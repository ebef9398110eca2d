"""`amps-ctl reload`: changes of the configuration file are applied, all or none."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.admin.support import Admin, running_admin
from tests.cli.reload_support import configuration, edit, refused, running
from tests.cli.test_ctl import ctl
from tests.support.chances import examples

LIMITS: Final = "<MessageMemoryLimit>10MB</MessageMemoryLimit>"
SOW: Final = """
<SOW><Topic>
  <Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
  <Durability>transient</Durability>
</Topic></SOW>
"""


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[Admin]:
    with running_admin(tmp_path, elements=LIMITS + SOW) as running:
        yield running


def traces(admin: Admin, name: str) -> bool:
    """Whether the commands of a client are in the log."""
    with admin.server.log_on(name) as peer:
        peer.ask({"c": "subscribe", "t": "orders", "a": "processed", "cid": "1"})
    assert admin.server.logs(f"client[{name}] disconnected")
    return f"12-0002 client[{name}]" in admin.server.log()


def test_levels_and_limits_are_applied(admin: Admin) -> None:
    assert ctl(admin, "reload").stdout == "0 differences applied.\n"
    edit(admin, "<Level>info</Level>", "<Level>trace</Level>")
    edit(admin, "10MB</MessageMemory", "20MB</MessageMemory")
    planned = ctl(admin, "reload", "--dry-run")
    assert planned.returncode == 0, planned.stderr
    lines = planned.stdout.splitlines()
    assert len(lines) == 2
    assert any("Level: info -> trace (" in line and "config.xml:" in line for line in lines), lines
    assert any("MessageMemoryLimit: 10MB -> 20MB (" in line for line in lines), lines
    assert not traces(admin, "before")
    assert "info</Level>" in running(admin)
    applied = ctl(admin, "reload")
    assert (applied.returncode, applied.stdout) == (0, f"{planned.stdout}2 differences applied.\n")
    assert traces(admin, "after")
    assert "trace</Level>" in running(admin)
    assert "20MB</MessageMemory" in running(admin)
    assert admin.server.logs("00-0059 The configuration has been reloaded: ")
    edit(admin, "<Level>trace</Level>", "<Level>info</Level>")
    assert ctl(admin, "reload").returncode == 0
    assert not traces(admin, "in the end")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("<Key>/id</Key>", "<Key>/key</Key>", "needs a restart: SOW/Topic orders (json): Key ("),
        ("<Key>/id</Key>", "<Key>/key</Key>", ": records, queues and subscriptions depend on it"),
        ("<Name>test-instance</Name>", "<Name>other</Name>", "needs a restart: Name ("),
        ("</SOW>", "", "config.xml:"),
        ("<Key>/id</Key>", "", "Key"),
    ],
)
def test_one_difference_that_needs_a_restart_refuses_all(
    admin: Admin, old: str, new: str, reason: str
) -> None:
    edit(admin, "<Level>info</Level>", "<Level>trace</Level>")
    edit(admin, old, new)
    assert reason in refused(admin)
    assert not traces(admin, "refused")
    assert admin.server.logs("00-0060 ")


TIMER: Final = """
<Actions><Action>
  <On><Module>amps-action-on-schedule</Module><Options><Every>100ms</Every></Options></On>
  <Do><Module>amps-action-do-echo-message</Module><Options><Message>{text}</Message></Options></Do>
</Action></Actions>
"""
ON_REQUEST: Final = """
<Actions><Action>
  <On><Module>amps-action-on-admin</Module><Options><Path>x</Path></Options></On>
  <Do><Module>amps-action-do-nothing</Module></Do>
</Action></Actions>
"""


def since_reload(admin: Admin) -> str:
    """The log from the line on that follows the last reload."""
    return admin.server.log().rpartition("00-0059")[2].partition("\n")[2]


def test_scheduled_actions_are_added_changed_and_removed(admin: Admin) -> None:
    first, second = TIMER.format(text="tick one"), TIMER.format(text="tick two")
    edit(admin, "</AMPSConfig>", f"{first}</AMPSConfig>")
    assert ctl(admin, "reload", "--dry-run").returncode == 0
    done = ctl(admin, "reload")
    assert (done.returncode, "Actions/Action" in done.stdout) == (0, True), done.stderr
    assert admin.server.logs("tick one")
    edit(admin, first, second)
    done = ctl(admin, "reload")
    assert (done.returncode, "tick one -> tick two" in done.stdout) == (0, True), done.stdout
    assert admin.server.logs("tick two")
    assert "tick one" not in since_reload(admin)
    edit(admin, second, ON_REQUEST)
    done = ctl(admin, "reload")
    assert (done.returncode, "needs a restart" in done.stderr) == (1, True)
    edit(admin, ON_REQUEST, "")
    assert ctl(admin, "reload").returncode == 0
    assert admin.server.waits_for(lambda log: log.count("00-0059") == 3)
    with admin.server.log_on("afterwards"):
        pass
    assert "tick" not in since_reload(admin)


ON_EVENT: Final = """
<Action>
  <On><Module>{module}</Module>{options}</On>
  <Do><Module>amps-action-do-publish-message</Module><Options>
    <MessageType>json</MessageType><Topic>seen</Topic>
    <Data>{{"by": "{name}"}}</Data>
  </Options></Do>
</Action>
"""


def test_actions_on_events_are_added_and_removed(admin: Admin) -> None:
    topic = "<Options><MessageType>json</MessageType><Topic>{}</Topic></Options>"
    actions = [
        ON_EVENT.format(module=f"amps-action-on-{module}", options=options, name=module)
        for module, options in (
            ("connect-client", ""),
            ("subscribe", topic.format("orders")),
            ("publish-message", topic.format("orders")),
            ("sow-delete-message", topic.format("orders")),
        )
    ]
    reactions = ["connect-client", "subscribe", "publish-message", "sow-delete-message"]
    with admin.server.log_on("watcher") as watcher:
        watcher.subscribe("seen", "1")

        def cause() -> None:
            with admin.server.log_on("cause") as peer:
                peer.subscribe("orders", "2", filter="1=2")
                peer.publish("orders", b'{"id": 1}')
                peer.ask(
                    {
                        "c": "sow_delete",
                        "t": "orders",
                        "filter": "1=1",
                        "a": "processed",
                        "cid": "3",
                    }
                )

        for _ in range(2):
            edit(admin, "</AMPSConfig>", f"<Actions>{''.join(actions)}</Actions></AMPSConfig>")
            assert ctl(admin, "reload", "--dry-run").returncode == 0
            cause()
            assert watcher.hears_nothing()
            assert ctl(admin, "reload").returncode == 0
            cause()
            bodies = [watcher.receive()[1] for _ in reactions]
            assert sorted(bodies) == sorted(f'{{"by": "{name}"}}'.encode() for name in reactions)
            edit(admin, f"<Actions>{''.join(actions)}</Actions>", "")
            assert ctl(admin, "reload").returncode == 0
            cause()
            assert watcher.hears_nothing()


LIVE: Final = {
    "<Level>": ("<Level>info</Level>", "<Level>trace</Level>", "<Level>warning</Level>"),
    "limit": (LIMITS, LIMITS.replace("10", "11"), ""),
}
RESTART: Final = {
    "key": ("<Key>/id</Key>", "<Key>/key</Key>"),
    "name": ("<Name>test-instance</Name>", "<Name>other-instance</Name>"),
}


@pytest.mark.long
def test_random_edits_are_whole_or_refused(admin: Admin) -> None:
    """A model has the texts that the instance runs."""
    chances = random.Random(41)
    file, original = configuration(admin.server), configuration(admin.server).read_text()
    variants = {**LIVE, **RESTART}
    runs = {name: texts[0] for name, texts in variants.items()}
    for _ in range(examples(12, 7)):
        wanted = {name: chances.choice(texts) for name, texts in LIVE.items()}
        wanted |= {
            name: texts[1] if chances.random() < 0.25 else texts[0]
            for name, texts in RESTART.items()
        }
        text = original
        for name, texts in variants.items():
            text = text.replace(texts[0], wanted[name])
        file.write_text(text)
        done = ctl(admin, "reload")
        if any(wanted[name] != runs[name] for name in RESTART):
            assert done.returncode == 1
            assert "needs a restart" in done.stderr
        else:
            changed = sum(wanted[name] != runs[name] for name in LIVE)
            assert done.returncode == 0, done.stderr
            assert len(done.stdout.splitlines()) == changed + 1
            runs = wanted
        shown = running(admin)
        assert all(text in shown for text in runs.values())
        level = runs["<Level>"].removeprefix("<Level>").partition("<")[0]
        admin.comes("/amps/instance/logging/console/1/log_levels", level)
