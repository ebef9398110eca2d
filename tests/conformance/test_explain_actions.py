"""ampServer --explain-actions: what actions will do, and when."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from actions import on_schedule
from actions.explain import explain
from config_schema.compile import compile_config
from config_schema.document import load
from config_schema.problems import Problems
from config_schema.validate import validate
from server.app.wiring.catalogue import ProgramCatalogue
from tests.support.server import ROOT, amp_server

CONFIGURATION = """<AMPSConfig>
  <Name>explained</Name>
  <Actions>
    <Action>
      <On><Module>amps-action-on-schedule</Module>
        <Options><Every>02:30</Every></Options></On>
      <On><Module>amps-action-on-signal</Module>
        <Options><Signal>SIGTERM</Signal></Options></On>
      <If><Module>amps-action-if-condition</Module>
        <Options><Condition>1 = 1</Condition></Options></If>
      <Do><Module>amps-action-do-truncate-statistics</Module>
        <Options><Age>7d</Age></Options></Do>
    </Action>
  </Actions>
</AMPSConfig>
"""

EXPECTED = """instance explained: 1 action

1. {path}:4
   when amps-action-on-schedule: runs at regular intervals or at times of the calendar
            Every = 02:30
            fires Saturday 2026-03-07 02:30:00 EST
            fires Sunday 2026-03-08 03:30:00 EDT
            fires Monday 2026-03-09 02:30:00 EDT
            fires Tuesday 2026-03-10 02:30:00 EDT
            fires Wednesday 2026-03-11 02:30:00 EDT
   when amps-action-on-signal: runs when the process receives a signal, instead of the default \
for that signal
            Signal = SIGTERM
   if   amps-action-if-condition: goes on only if a filter over the variables is true
            Condition = 1 = 1
   then amps-action-do-truncate-statistics: removes old statistics from the database
            Age = 7d

and by default
   SIGUSR1: switches authentication off, switches entitlement off
   SIGUSR2: switches authentication on, switches entitlement on
   SIGINT: stops the instance
   SIGHUP: stops the instance
   SIGQUIT: writes a minidump"""


def test_each_action_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zone = ZoneInfo("America/New_York")
    monkeypatch.setattr(on_schedule, "local_zone", lambda: zone)
    path = str(tmp_path / "config.xml")
    Path(path).write_text(CONFIGURATION)
    problems = Problems()
    document = load(path, defines={}, environ={}, problems=problems)
    assert document is not None
    spec = compile_config(validate(document, problems), ProgramCatalogue(), problems)
    assert spec is not None
    assert explain(spec, datetime(2026, 3, 6, 12, tzinfo=zone)) == EXPECTED.format(path=path)


def test_the_command(tmp_path: Path) -> None:
    sample = ROOT / "sample_configs" / "actions.xml"
    done = amp_server("--explain-actions", sample, cwd=tmp_path, TZ="Asia/Tokyo")
    assert done.returncode == 0
    assert done.stdout.startswith("instance actions: 4 actions\n")
    assert done.stdout.count("02:30:00 JST") == 5
    assert "is valid: 0 errors, 0 warnings" in done.stderr
