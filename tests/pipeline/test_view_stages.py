"""The stages of streaming views against the server's own views, over random micro-batches."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, TypeAlias

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.streaming.tws_tester import TwsTester

from config_schema.spec import ViewSpec
from pipeline.configuration import read_configuration
from pipeline.expressions import Environment
from pipeline.views.definition import ViewDefinition
from pipeline.views.streaming.groups import GroupProcessor
from pipeline.views.streaming.joins import JoinProcessor
from pipeline.views.streaming.latest import LatestProcessor, PartExtractor
from server.storage.sow.records import Record, RecordChange
from server.storage.views.aggregation import Aggregation
from tests.support.chances import examples
from tests.support.server import CONFIGURATION

TOPICS = """
<SOW>
  <Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key><Durability>transient</Durability></Topic>
  <Topic><Name>customers</Name><MessageType>json</MessageType><Key>/id</Key><Durability>transient</Durability></Topic>
  <Topic><Name>items</Name><MessageType>json</MessageType><Key>/id</Key><Durability>transient</Durability></Topic>
  <View>
    <Name>single</Name><MessageType>json</MessageType><UnderlyingTopic>orders</UnderlyingTopic>
    <Filter>/n &gt; 0 OR /n IS NULL</Filter>
    <Projection>
      <Field>/a</Field><Field>SUM(/n) AS /sum</Field><Field>MIN(/n) AS /min</Field>
      <Field>MAX(/b) AS /max</Field><Field>COUNT_DISTINCT(/b) AS /distinct</Field>
      <Field>COUNT(/id) AS /count</Field><Field>AVG(MESSAGE_SIZE()) AS /size</Field>
    </Projection>
    <Grouping><Field>/a</Field></Grouping>
  </View>
  {joins}
</SOW>
"""
JOIN = """
  <View>
    <Name>{name}</Name><MessageType>json</MessageType>
    <UnderlyingTopic>
      <Join>[json].[orders].[/a] = [json].[customers].[/a]</Join>
      {second}
    </UnderlyingTopic>
    <JoinNullEquivalency>{nulls}</JoinNullEquivalency>
    <Projection>
      <Field>[json].[customers]./b AS /b</Field>
      <Field>COUNT([json].[orders]./id) AS /orders</Field>
      <Field>SUM([json].[{last}]./n) AS /n</Field>
      <Field>GROUP_CONCAT([json].[customers]./id) AS /customers</Field>
    </Projection>
    <Grouping><Field>[json].[customers]./b</Field></Grouping>
  </View>
"""
SECOND = "<Join>[json].[{left}].[/b] = [json].[items].[/b]</Join>"
BOTH = SECOND.format(left="customers") + "<Join>[json].[orders].[/n] = [json].[items].[/n]</Join>"
VIEWS = {
    "two": ("", "customers", "false"),
    "two-null": ("", "customers", "true"),
    "chain": (SECOND.format(left="customers"), "items", "false"),
    "star-null": (SECOND.format(left="orders"), "items", "true"),
    "both": (BOTH, "items", "false"),
    "both-null": (BOTH, "items", "true"),
}
NAMES = ["single", *VIEWS]


@pytest.fixture(scope="module")
def views(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ViewDefinition]:
    """The views of the configuration above."""
    joins = "".join(
        JOIN.format(name=name, second=second, last=last, nulls=nulls)
        for name, (second, last, nulls) in VIEWS.items()
    )
    path = tmp_path_factory.mktemp("stages") / "config.xml"
    elements = TOPICS.format(joins=joins)
    path.write_text(
        CONFIGURATION.format(port=9007, elements=elements, transports="", level="error")
    )
    spec = read_configuration(str(path))
    return {
        view.name: ViewDefinition(view, Environment(spec))
        for view in spec.sow
        if isinstance(view, ViewSpec)
    }


Event: TypeAlias = tuple[int, Record | None, str, int]
"""The place of its topic, the record, its key, and the sequence."""


class Stage:
    """A stage without Spark around it."""

    def __init__(self, processor: StatefulProcessor, key: str) -> None:
        self._tester = TwsTester(processor)
        self._key = key

    def __call__(self, rows: Iterable[Row]) -> list[Row]:
        """A micro-batch."""
        by_key: dict[str, list[Row]] = defaultdict(list)
        for row in rows:
            by_key[row[self._key]].append(row)
        return [out for key in by_key for out in self._tester.test(key, by_key[key])]


class Streamed:
    """A view that is kept up by its stages."""

    def __init__(self, view: ViewDefinition) -> None:
        places = range(len(view.compiled.topics))
        self._reading = [PartExtractor(view, place) for place in places]
        self._latest = [Stage(LatestProcessor(is_right=place > 0), "record") for place in places]
        self._joins = [Stage(JoinProcessor(view), "key") for _ in places[1:]]
        self._groups = Stage(GroupProcessor(view), "key")
        self.records: dict[str, bytes] = {}

    def take(self, events: list[Event]) -> None:
        """A micro-batch."""
        sides = []
        for place, latest in enumerate(self._latest):
            mine = [one for one in events if one[0] == place]
            (read,) = self._reading[place](iter([_batch(mine)]))
            sides.append(latest(Row(**one) for one in read.to_pylist()))
        rows = sides[0]
        for join, right in zip(self._joins, sides[1:], strict=True):
            rows = join([*right, *rows])
        for event in self._groups(rows):
            if event.is_gone:
                assert self.records.pop(event.key) == event.body
            else:
                assert self.records.get(event.key) != event.body
                self.records[event.key] = event.body


def _batch(events: list[Event]) -> pa.RecordBatch:
    columns: dict[str, Any] = {
        "key": pa.array([key for _, _, key, _ in events], pa.string()),
        "body": pa.array([record and record.body for _, record, _, _ in events], pa.binary()),
        "topic": pa.array(["t"] * len(events), pa.string()),
        "timestamp": pa.array([1] * len(events), pa.int64()),
        "sequence": pa.array([sequence for *_, sequence in events], pa.int64()),
        "correlation_id": pa.array([""] * len(events), pa.string()),
        "bookmark": pa.array([""] * len(events), pa.string()),
        "is_gone": pa.array([record is None for _, record, _, _ in events], pa.bool_()),
        "expires": pa.array([None] * len(events), pa.int64()),
    }
    return pa.RecordBatch.from_pydict(columns)


class InServer:
    """The same view with the server's own rows and groups."""

    def __init__(self, view: ViewDefinition) -> None:
        compiled = view.compiled
        self._aggregation = Aggregation(
            compiled.projection,
            compiled.make_row_source(),
            view.message_type,
            view.spec.key_domain,
            is_joined=len(compiled.topics) > 1,
        )
        self._there: dict[tuple[int, str], Record] = {}
        self.records: dict[str, bytes] = {}

    def take(self, events: list[Event]) -> None:
        """The same events, one by one."""
        for place, record, key, _ in events:
            previous = self._there.pop((place, key), None)
            if record is not None:
                self._there[place, key] = record
            change = RecordChange(key, "t", previous, record)
            for group in list(self._aggregation.apply_change(place, change, None)):
                if self._aggregation.remove_if_empty(group):
                    self.records[group.sow_key] = self._aggregation.build_body(group)
                else:
                    self.records.pop(group.sow_key, None)


BODIES = st.fixed_dictionaries(
    {
        "a": st.sampled_from(["x", "y", "z", None]),
        "b": st.sampled_from(["p", "q", None]),
        "n": st.sampled_from([-1, 1, 2, 0.5, None]),
    }
)
EVENTS = st.tuples(st.integers(0, 2), st.integers(1, 3), st.one_of(st.none(), BODIES, BODIES))
BATCHES = st.lists(st.lists(EVENTS, max_size=6), min_size=1, max_size=6)


@settings(max_examples=examples(150), deadline=None)
@given(name=st.sampled_from(NAMES), batches=BATCHES)
def test_micro_batches_make_what_the_server_makes(
    views: dict[str, ViewDefinition], name: str, batches: list[list[tuple[int, int, Any]]]
) -> None:
    """Records come, change and go on all sides of joins, in any order, in batches of any size."""
    view = views[name]
    topics = len(view.compiled.topics)
    streamed, in_server = Streamed(view), InServer(view)
    sequence = 0
    for batch in batches:
        events: list[Event] = []
        for place, number, fields in batch:
            if place >= topics:
                continue
            sequence += 1
            key = str(number)
            record = None
            if fields is not None:
                body = json.dumps({"id": number, **fields}).encode()
                record = Record(key, body, "t", 1, 0, sequence)
            events.append((place, record, key, sequence))
        streamed.take(events)
        in_server.take(events)
        assert streamed.records == in_server.records
