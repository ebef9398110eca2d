"""Runs all benchmarks, or those named: `python -m benchmarks [NAME ...]`; or `profile WORK`."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Final

from benchmarks import profile
from benchmarks.tables import written

BENCHMARKS: Final[Mapping[str, str]] = {
    "aims": "what the message path is to reach, beside peers, in one table",
    "costs": "what each step of a message costs: the figures of docs/scaling.md",
    "pubsub": "publish and subscribe, beside other servers",
    "wire": "one publisher and one subscriber, beside copying bytes",
    "io_threads": "what threads that write to sockets take over from the engine's thread",
    "fairness": "what others wait for while one client is busy",
    "stalls": "the longest round trip of a client beside attacks of another",
    "logons": "what others wait for while 1,000 clients a second log on with passwords",
    "matching": "what filters cost",
    "entitlement": "what permissions cost",
    "first_matches": "what many filters cost: subscribing, the first match, memory",
    "sow": "publishing and querying records, beside databases",
    "sql": "SQL: statements beside DuckDB, records by key, SUBSCRIBE, memory",
    "journal": "the transaction log, beside the disk",
    "replay": "bookmark subscriptions",
    "replication": "other instances: what they cost, and how fast they catch up",
    "queues": "queues, beside RabbitMQ",
    "views": "changes of views, beside DuckDB",
    "statistics": "what samples, counters and large documents cost",
    "pages": "changes of paginated subscriptions",
    "console": "what the console costs a browser that shows 10,000 clients",
    "statistics_database": "a month of statistics",
    "bodies": "reading fields, per message type",
    "pipeline": "Spark, beside Parquet",
    "pipeline_journal": "journals on Spark, beside Parquet",
}
"""What can be measured, by the names of modules."""


def main(arguments: Sequence[str]) -> None:
    """Run benchmarks one after the other.

    Args:
        arguments: the command line without the program's name.
    """
    if arguments[:1] == ["profile"]:
        profile.main(arguments[1:])
        return
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure what is named, or everything; `profile WORK` says where time goes.",
        epilog="\n".join(f"{name:<19} {what}" for name, what in BENCHMARKS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="one of those below")
    parser.add_argument(
        "--write", action="store_true", help="put the tables into the pages of docs/, too"
    )
    options = parser.parse_args(arguments)
    names: list[str] = options.names
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]}: expected {', '.join(BENCHMARKS)}")
    for name in names or BENCHMARKS:
        with written(name) if options.write else nullcontext():
            importlib.import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main(sys.argv[1:])
