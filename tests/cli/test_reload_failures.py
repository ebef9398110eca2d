"""A reload whose parts fail, and a drain meanwhile."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from actions.services import ActionServices
from server.admin.pages import ConfigurationText
from server.app.configuration import read_configuration
from server.app.reload.configuration_reload import ConfigurationReload
from server.app.reload.reloadable_part import (
    ConfigurationChange,
    PreparedChange,
    ReloadIncompleteError,
)
from server.app.wiring.drain import DrainError, InstanceDrain
from server.app.wiring.source_files import SourceFileWatch
from server.app.wiring.transport_table import TransportTable
from server.engine.internal_client import InternalClient
from server.process.file_watch import FileWatch
from tests.engine.support import Core, RecordingLog
from tests.support.server import CONFIGURATION, free_port

if TYPE_CHECKING:
    from config_schema.settings import SettingChange

LIMITS: Final = "<MessageMemoryLimit>10MB</MessageMemoryLimit>"


@dataclass
class Part:
    """Takes all differences; counts, and fails where a test says so.

    Attributes:
        fails_at: `prepare` or `apply`; empty for neither.
        done: the calls.
    """

    fails_at: str = ""
    done: list[str] = field(default_factory=list)

    def check(self, _change: SettingChange, _case: ConfigurationChange) -> str | None:
        """See `ReloadablePart.check`."""
        return ""

    def prepare(self, _case: ConfigurationChange) -> PreparedChange:
        """See `ReloadablePart.prepare`."""
        self._note("prepare")

        async def apply() -> None:
            self._note("apply")

        return PreparedChange(apply, partial(self._note, "discard"))

    def _note(self, call: str) -> None:
        self.done.append(call)
        if call == self.fails_at:
            raise LookupError(call)


def configuration(directory: Path, elements: str) -> str:
    """The path of a configuration."""
    path = directory / "config.xml"
    text = CONFIGURATION.format(port=free_port(), elements=elements, transports="", level="info")
    path.write_text(text)
    return str(path)


def reload_of(directory: Path, log: RecordingLog, *parts: Part) -> ConfigurationReload:
    """A reload that has one difference to apply."""
    running = read_configuration(configuration(directory, LIMITS), {})
    configuration(directory, LIMITS.replace("10", "20"))
    assert running.spec is not None
    files = SourceFileWatch(FileWatch(log), {}, log)
    return ConfigurationReload(running, {}, log, parts, ConfigurationText("", running.spec), files)


def test_a_part_that_fails_keeps_no_other_from_being_applied(tmp_path: Path) -> None:
    log, failing, other = RecordingLog(), Part("apply"), Part()
    reload = reload_of(tmp_path, log, failing, other)
    with pytest.raises(ReloadIncompleteError, match="LookupError"):
        asyncio.run(reload.apply())
    assert other.done == ["prepare", "apply"]
    assert "01-0004" in [entry[0] for entry in log.entries]
    failing.fails_at = ""
    assert asyncio.run(reload.plan()) == [], "the configuration is the one that runs"


def test_a_part_that_cannot_be_prepared_has_the_others_discarded(tmp_path: Path) -> None:
    first = Part()
    reload = reload_of(tmp_path, RecordingLog(), first, Part("prepare"))
    with pytest.raises(LookupError):
        asyncio.run(reload.apply())
    assert first.done == ["prepare", "discard"]


def test_no_drain_begins_during_a_reload_and_no_reload_during_a_drain(tmp_path: Path) -> None:
    spec = read_configuration(configuration(tmp_path, ""), {}).spec
    assert spec is not None

    async def run() -> None:
        engine = Core().engine
        transports = TransportTable(spec, engine)
        services = ActionServices(
            engine=engine,
            make_client=partial(InternalClient, engine),
            transports=transports,
            stop_instance=lambda _source: None,
            rotate_logs=lambda: None,
            write_minidump=lambda: None,
            file_watch=FileWatch(engine.log),
        )
        drain = InstanceDrain(engine, transports, services, lambda _source: None)
        with drain.excluded(), pytest.raises(DrainError, match="being reloaded"):
            drain.begin(60, is_forced=False)
        drain.begin(60, is_forced=False)
        with pytest.raises(DrainError, match="being drained"), drain.excluded():
            pass
        drain.close()

    asyncio.run(run())


def test_a_part_that_cannot_be_discarded_keeps_no_other_prepared(tmp_path: Path) -> None:
    parts = Part("discard"), Part(), Part("prepare")
    with pytest.raises(LookupError):
        asyncio.run(reload_of(tmp_path, RecordingLog(), *parts).apply())
    assert [part.done for part in parts] == [
        ["prepare", "discard"],
        ["prepare", "discard"],
        ["prepare"],
    ]
