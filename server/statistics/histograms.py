"""Distributions of durations and sizes, for the metrics; the Monitoring Guide does not have them.

Written on the engine's thread, those of the log on the committer's. Counts are read without
synchronization: while a histogram changes, its sum may be ahead of its counts, or behind them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from server.statistics.sources.texts import topic_ids

if TYPE_CHECKING:
    from server.engine.engine import Engine
    from server.util.histogram import Histogram

TASK_DURATION: Final = "turn"
"""The distribution of the durations of tasks on the engine's thread, as users know it."""


class Distribution(NamedTuple):
    """A histogram, and its description.

    Attributes:
        name: the name of the measured quantity, as in names of metrics.
        unit: of its numbers: `microseconds` or `bytes`.
        description: the quantity in words, for people.
        entry: the queue, if there are several of the name; empty if there is only one.
        histogram: the numbers.
    """

    name: str
    unit: str
    description: str
    entry: str
    histogram: Histogram


def distributions(engine: Engine) -> list[Distribution]:
    """Return all distributions of an instance, after the recovery of its topics.

    Args:
        engine: has the counters.
    """
    queues = list(engine.topics.queues or ())
    ids = topic_ids((topic.name, topic.message_type.name) for topic in queues)
    result = [
        Distribution(
            TASK_DURATION,
            "microseconds",
            "how long pieces of work have held up the engine's thread",
            "",
            engine.scheduler.task_durations,
        ),
        Distribution(
            "publish_to_persisted",
            "microseconds",
            "time from a publish that asks for a persisted ack until it was settled",
            "",
            engine.persist_latencies,
        ),
        Distribution(
            "sql_statement",
            "microseconds",
            "how long statements of SQL were executed",
            "",
            engine.sql_counters.durations_us,
        ),
        *(
            Distribution(
                "queue_time_to_acknowledge",
                "microseconds",
                "how long consumers had messages that they acknowledged",
                name,
                queue.core.lifecycle.leases.hold_times_us,
            )
            for name, queue in zip(ids, queues, strict=True)
        ),
    ]
    if engine.transaction_log is not None:
        journal = engine.transaction_log.journal
        about = "how long writes to the transaction log took until they were safe"
        result += [
            Distribution("log_write", "microseconds", about, "", journal.write_latency),
            Distribution(
                "log_write_size",
                "bytes",
                "how much was written to the transaction log at a time",
                "",
                journal.write_sizes,
            ),
        ]
    return result
