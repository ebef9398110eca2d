"""SIGHUP, and actions, have an instance reload its configuration; the log has the result."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Final

from tests.cli.reload_support import configuration
from tests.support.server import RunningServer, running_server

OPTION: Final = ("--reload-on-sighup",)
MORE: Final = ("<Level>info</Level>", "<Level>trace</Level>")
RELOADED: Final = "00-0059 The configuration has been reloaded: Logging/Target stdout: Level: info"
ACTION: Final = """
<Actions><Action>
  <On><Module>{module}</Module><Options>{options}</Options></On>
  <Do><Module>amps-action-do-{step}</Module>{given}</Do>
</Action></Actions>
"""


def edit(server: RunningServer, old: str, new: str) -> None:
    """Replace a text in the configuration."""
    file = configuration(server)
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_sighup_reloads_where_the_option_is_given(tmp_path: Path) -> None:
    with running_server(tmp_path, options=OPTION) as server:
        edit(server, *MORE)
        server.process.send_signal(signal.SIGHUP)
        assert server.logs(RELOADED)
        with server.log_on("seen") as peer:
            peer.flush()
        assert server.logs("12-0002 client[seen]")
        edit(server, "<Name>test-instance</Name>", "<Name>other</Name>")
        server.process.send_signal(signal.SIGHUP)
        assert server.logs("00-0060 The configuration has not been reloaded: needs a restart: Name")
        edit(server, "</AMPSConfig>", "")
        server.process.send_signal(signal.SIGHUP)
        assert server.logs("00-0060 ", times=2)
        with server.log_on() as peer:
            peer.flush()
        assert server.stop() == 0


def test_sighup_stops_without_the_option(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        assert server.stop(signal.SIGHUP) == 0
        assert server.logs("shutdown requested by signal SIGHUP")


def test_an_action_of_the_configuration_wins(tmp_path: Path) -> None:
    own = ACTION.format(
        module="amps-action-on-signal",
        options="<Signal>SIGHUP</Signal>",
        step="echo-message",
        given="<Options><Message>heard it</Message></Options>",
    )
    with running_server(tmp_path, elements=own, options=OPTION) as server:
        edit(server, *MORE)
        server.process.send_signal(signal.SIGHUP)
        assert server.logs("heard it")
        assert server.stop() == 0
        assert "00-0059" not in server.log()


def test_an_action_reloads(tmp_path: Path) -> None:
    """Also one that the reload removes."""
    own = ACTION.format(
        module="amps-action-on-file-change",
        options="<Path>config.xml</Path>",
        step="reload-configuration",
        given="",
    )
    with running_server(tmp_path, elements=own) as server:
        edit(server, *MORE)
        assert server.logs(RELOADED)
        edit(server, own, "")
        assert server.logs("Actions/Action")
        with server.log_on() as peer:
            peer.flush()
