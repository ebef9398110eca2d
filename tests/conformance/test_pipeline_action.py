"""amps-action-do-run-pipeline: a job that an event starts, in a process of its own."""

from __future__ import annotations

from pathlib import Path

from tests.support.server import running_server

ELEMENTS = """
<Modules>
  <Module><Name>spark</Name><Library>libamps_spark_pipeline.so</Library></Module>
</Modules>
<SOW>
  <Topic>
    <Name>orders</Name><MessageType>json</MessageType><Key>/id</Key><FileName>orders.sow</FileName>
  </Topic>
</SOW>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>1MB</JournalSize>
  <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
<Actions>
  <Action>
    <On>
      <Module>amps-action-on-publish-message</Module>
      <Options><Topic>rebuild</Topic><MessageType>json</MessageType></Options>
    </On>
    <Do>
      <Module>amps-action-do-run-pipeline</Module>
      <Options>
        <Job>rebuild</Job>
        <Arguments>config.xml --topic orders --output {{AMPS_DATA}}</Arguments>
      </Options>
    </Do>
  </Action>
  <Action>
    <On>
      <Module>amps-action-on-publish-message</Module>
      <Options><Topic>short</Topic><MessageType>json</MessageType></Options>
    </On>
    <Do>
      <Module>amps-action-do-run-pipeline</Module>
      <Options><Job>stats</Job><Arguments>journal</Arguments><Timeout>10ms</Timeout></Options>
    </Do>
  </Action>
</Actions>
"""


def test_an_event_starts_a_job_over_the_journals_of_the_running_server(tmp_path: Path) -> None:
    with running_server(tmp_path, elements=ELEMENTS) as server:
        peer = server.log_on()
        for number in range(50):
            peer.publish("orders", b'{"id":%d}' % (number % 7))
        last = {"c": "publish", "t": "orders", "a": "persisted", "s": 51, "cid": "last"}
        assert peer.ask(last, b'{"id":7}')["status"] == "success"

        peer.publish("rebuild", b"made anew.sow")
        assert server.logs("job rebuild of the data pipeline ended after")
        assert server.logs("with: 8 records from ")
        assert (tmp_path / "made anew.sow").is_file(), "a value stays one word"

        peer.publish("rebuild", b"made anew.sow")
        assert server.logs("made anew.sow: exists already; move it away")

        peer.publish("rebuild", b"--version")
        assert server.logs("a variable would become the option '--version'")

        peer.publish("short", b"{}")
        assert server.logs("it took longer than 0.01 seconds")
