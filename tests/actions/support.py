"""Actions in an engine without sockets: clients are bytes in memory, the event loop is real."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from actions.action import Action, ActionPart
from actions.module import Trigger
from actions.registry import TRIGGERS, make_part
from actions.services import ActionServices
from config_schema.problems import Location
from config_schema.spec import Option, Options
from server.app.wiring.transport_table import TransportTable
from server.engine.internal_client import InternalClient
from server.message_types.registry import MessageTypes
from server.process.file_watch import FileWatch
from server.storage.sow.topic_records import SowTopicRecords
from server.transports.listener import TransportError
from tests.engine.support import Core, CorePeer
from tests.storage.sow.support import make_topic, topic_spec

HERE = Location("config.xml", 7)

Use = tuple[str, dict[str, str | list[str]]]


def options(given: dict[str, str | list[str]]) -> Options:
    """Options as the compiler hands them out."""
    return Options(
        tuple(
            Option(name, text, (), HERE)
            for name, value in given.items()
            for text in ([value] if isinstance(value, str) else value)
        )
    )


class SomeTransports(TransportTable):
    """Two transports that can be switched."""

    def __init__(self) -> None:
        self.open_names = {"one", "two"}

    @property
    def names(self) -> tuple[str, ...]:
        """Both."""
        return ("one", "two")

    @property
    def open_from_start(self) -> dict[str, bool]:
        """Both, and whether they are open."""
        return {name: name in self.open_names for name in self.names}

    async def enable(self, name: str) -> None:
        """Open."""
        self._check(name)
        self.open_names.add(name)

    async def disable(self, name: str) -> None:
        """Close."""
        self._check(name)
        self.open_names.discard(name)

    def _check(self, name: str) -> None:
        if name not in self.names:
            raise TransportError(f"there is no transport named {name!r}")


class Bench:
    """An engine with services for actions."""

    def __init__(self) -> None:
        self.core = Core()
        self.core.types["xml"] = MessageTypes().get("xml")
        self.core.types["nvfix"] = MessageTypes().get("nvfix")
        self.transports = SomeTransports()
        self.stopped: list[str] = []
        self.rotations = 0
        self.actions: list[Action] = []
        self.services = ActionServices(
            engine=self.core.engine,
            make_client=partial(InternalClient, self.core.engine),
            transports=self.transports,
            stop_instance=self.stopped.append,
            rotate_logs=self._rotate,
            write_minidump=lambda: Path("/dumps/one.txt"),
            file_watch=FileWatch(self.core.log),
        )

    def add(self, on: Use | None, *steps: Use) -> Action:
        """Add an action, and provision it."""
        parts = []
        for name, given in steps:
            parts.append(ActionPart(name, make_part(name, options(given)), HERE))
        return self.add_parts(on, parts)

    def add_parts(self, on: Use | None, parts: Sequence[ActionPart]) -> Action:
        """Add an action of modules that have been made."""
        action = Action("none" if on is None else on[0], parts, self.services)
        for part in parts:
            part.module.provision(self.services)
        if on is not None:
            trigger: Trigger = TRIGGERS[on[0]](options(on[1]))
            trigger.provision(self.services, action)
            trigger.start()
        self.actions.append(action)
        return action

    def run(self, operation: Callable[[], Any] | None = None) -> None:
        """Do something, and wait until no action has anything left to do."""
        asyncio.run(self._settle(operation))

    def perform(self, **values: bytes) -> None:
        """Run the first action once."""
        self.run(lambda: self.actions[0].post(values))

    def post_all(self, events: Sequence[dict[str, bytes]]) -> None:
        """Have the first action run for several events that come at once."""

        def post() -> None:
            for values in events:
                self.actions[0].post(values)

        self.run(post)

    def echoes(self) -> list[str]:
        """What actions have echoed."""
        return [
            text.decode() if isinstance(text := fields["text"], bytes) else str(text)
            for message_id, fields in self.core.log.entries
            if message_id == "29-0103"
        ]

    def entries(self, message_id: str) -> list[dict[str, object]]:
        """The log's entries with an id."""
        return [fields for found, fields in self.core.log.entries if found == message_id]

    async def _settle(self, operation: Callable[[], Any] | None) -> None:
        result = operation() if operation is not None else None
        if isinstance(result, Awaitable):
            await result
        for _ in range(5):  # one action may give work to another
            for action in self.actions:
                await action.wait_until_idle()

    def _rotate(self) -> None:
        self.rotations += 1


def echo(text: str) -> Use:
    """A step that writes to the log."""
    return "amps-action-do-echo-message", {"Message": text}


def publish(topic: str, data: str, message_type: str = "json") -> Use:
    """A step that publishes."""
    return "amps-action-do-publish-message", {
        "Topic": topic,
        "MessageType": message_type,
        "Data": data,
    }


def on_publish(topic: str, **more: str | list[str]) -> Use:
    """A trigger on publishes."""
    return "amps-action-on-publish-message", {"Topic": topic, "MessageType": "json", **more}


def with_records(**more: int | bool) -> tuple[Bench, CorePeer]:
    """A bench with a topic that keeps records, and a client."""
    bench = Bench()
    expiration = int(more.get("expiration", 0)) or None
    sow: SowTopicRecords = make_topic(
        topic_spec("/id", expiration_enabled=expiration is not None, expiration=expiration)
    )
    bench.core.engine.sow_registry.add(sow, sow.table.store.commit)
    return bench, bench.core.log_on("p")


def put(peer: CorePeer, number: int, state: str) -> None:
    peer.send({"c": "publish", "t": "orders"}, b'{"id":%d,"s":"%s"}' % (number, state.encode()))
