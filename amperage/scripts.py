"""Entry points of the commands, which first check that their packages are not shadowed.

A `server.py` in a directory of `PYTHONPATH` shadows Amperage's package `server`. Without the check,
the command would fail with a misleading message.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module

from amperage.own import PACKAGES, foreign_origin


def _script(module: str) -> Callable[[], int]:
    def run() -> int:
        for name in PACKAGES:
            other = foreign_origin(name)
            if other is not None:
                sys.stderr.write(
                    f"{other} has the name of Amperage's package {name} and comes before it:"
                    " rename it, or take its directory off PYTHONPATH\n"
                )
                return 1
        status: int = import_module(module).main()
        return status

    return run


amp_server = _script("server.cli.amp_server")
ampserr = _script("server.cli.ampserr")
amps_backup = _script("server.cli.amps_backup")
amps_bio_perf_test = _script("server.cli.amps_bio_perf_test")
amps_client_ack_dump = _script("server.cli.amps_client_ack_dump")
amps_ctl = _script("server.cli.amps_ctl")
amps_doctor = _script("server.cli.amps_doctor")
amps_file = _script("server.cli.amps_file")
amps_grep = _script("server.cli.amps_grep")
amps_journal_dump = _script("server.cli.amps_journal_dump")
amps_journal_search = _script("server.cli.amps_journal_search")
amps_queues_ack_dump = _script("server.cli.amps_queues_ack_dump")
amps_pipeline = _script("pipeline.cli")
amps_report_minidump = _script("server.cli.amps_report_minidump")
amps_service = _script("server.cli.amps_service")
amps_sow_dump = _script("server.cli.amps_sow_dump")
amps_sqlite3 = _script("server.cli.amps_sqlite3")
amps_sqlite3_report = _script("server.cli.amps_sqlite3_report")
amps_tx_topic_index_dump = _script("server.cli.amps_tx_topic_index_dump")
amps_upgrade = _script("server.cli.amps_upgrade")
amps_users = _script("server.cli.amps_users")
spark = _script("server.cli.spark")
