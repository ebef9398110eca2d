"""The streaming query of a view."""

from __future__ import annotations

import hashlib
import time
from contextlib import contextmanager
from dataclasses import replace
from threading import Thread
from typing import TYPE_CHECKING, Final

from config_schema.problems import Location
from config_schema.spec import ConflatedTopicSpec, ViewSpec
from pipeline.foreach_batch import shorten_java_errors
from pipeline.views.streaming.checkpoint import ViewIdentity, lock_checkpoint, store_identity
from pipeline.views.streaming.plan import topics_below, view_events

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from config_schema.spec import InstanceSpec, TopicRef
    from pipeline.views.streaming.sources import ViewEventSource
    from pipeline.views.streaming.targets import ViewEventTarget

_STATE_STORE: Final = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # Write the changes of a micro-batch, and not the whole state.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
_LOOK_FOR_EXPIRED: Final = "1 second"
"""The interval of micro-batches that only let records expire."""

_POLL_INTERVAL_S: Final = 0.1
"""Seconds between two polls of a query's progress."""


@contextmanager
def stream_view(
    spark: SparkSession,
    spec: InstanceSpec,
    view: TopicRef,
    source: ViewEventSource,
    target: ViewEventTarget,
    checkpoint: Path,
    *,
    until_caught_up: bool = False,
) -> Iterator[StreamingQuery]:
    """Update a view continuously; resume where an earlier run stopped, however it ended.

    The changes of the view in a micro-batch reach the target once. No change is counted twice: the
    state of the view is committed with the micro-batch, as the position in the log is.

    Args:
        spark: the session.
        spec: the instance.
        view: the view.
        source: the source of events.
        target: the destination of the view's records.
        checkpoint: a directory for the query's state; with a new one, the query begins with the
            first entry of the log.
        until_caught_up: end at the end of the log as it is at the start.

    Yields:
        The query, which is stopped at the end.

    Raises:
        PipelineError: the view cannot be followed, or the checkpoint has another identity.
    """
    topics = topics_below(spec, view)
    identity = ViewIdentity(
        f"{view} as defined {_fingerprint(spec, view)}", source.name, target.name
    )
    with lock_checkpoint(checkpoint, identity) as is_new:
        source.check(spec, topics)
        target.check(is_new=is_new)
        store_identity(checkpoint, identity)
        events = view_events(spec, view, lambda topic: source.events(spark, spec, topic))
        writer = events.writeStream.outputMode("append").foreachBatch(
            shorten_java_errors(target.apply_batch)
        )
        writer = writer.option("checkpointLocation", str(checkpoint.resolve()))
        expires = any(topic.expiration_enabled for topic in topics)
        if until_caught_up:
            writer = writer.trigger(availableNow=True)
        elif expires:
            writer = writer.trigger(processingTime=_LOOK_FOR_EXPIRED)
        with _configured(spark, _STATE_STORE):
            query = writer.start()
        if until_caught_up and expires:
            Thread(target=_stop_when_caught_up, args=(query,), daemon=True).start()
        try:
            yield query
        finally:
            query.stop()


def _stop_when_caught_up(query: StreamingQuery) -> None:
    """Stop a query after a micro-batch without new events.

    Spark does not: where records may expire, it runs empty micro-batches for ever. The first one
    may be one of an earlier run, which is repeated.
    """
    while query.isActive:
        progress = query.recentProgress
        if len(progress) > 1 and all(
            source["startOffset"] == source["endOffset"] for source in progress[-1]["sources"]
        ):
            query.stop()
            return
        time.sleep(_POLL_INTERVAL_S)


@contextmanager
def _configured(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Apply settings that a query copies when it starts, and restore them afterwards."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, text in settings.items():
        spark.conf.set(name, text)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def _fingerprint(spec: InstanceSpec, view: TopicRef) -> str:
    """Return a fingerprint of the definition of a view and its underlying topics."""
    topics = {topic.ref: topic for topic in spec.sow}
    nowhere = Location("", 0)
    texts: list[str] = []

    def visit(ref: TopicRef) -> None:
        topic = topics[ref]
        if isinstance(topic, ViewSpec):
            texts.append(repr(replace(topic, location=nowhere)))
            for below in topic.underlying:
                visit(below)
        elif isinstance(topic, ConflatedTopicSpec):
            texts.append(repr(replace(topic, location=nowhere)))
            visit(topic.underlying)
        else:
            texts.append(str(ref))

    visit(view)
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:12]
