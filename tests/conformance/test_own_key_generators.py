"""A key generator in Python decides which record a message is about."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.server import running_server

PAGE = Path(__file__).parents[2] / "docs" / "sow.md"
ELEMENTS = """
<Modules><Module><Name>by-region</Name><Library>./by_region.py</Library></Module></Modules>
<SOW>
  <Topic>
    <Name>offices</Name><MessageType>json</MessageType><FileName>%n.sow</FileName>
    <KeyGenerator>
      <Module>by-region</Module><Options><Field>/region</Field></Options>
    </KeyGenerator>
  </Topic>
</SOW>
"""


def test_the_example_of_the_documentation_works(tmp_path: Path) -> None:
    """Its keys are those of records, also after a restart; a message without one is refused."""
    example = re.search(r"```python\n# by_region\.py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert example is not None
    (tmp_path / "by_region.py").write_text(example[1])
    with running_server(tmp_path, elements=ELEMENTS) as server, server.log_on() as peer:
        peer.publish("offices", b'{"region":"east","staff":1}')
        peer.publish("offices", b'{"region":"east","staff":2}')
        peer.publish("offices", b'{"region":"west","staff":3}')
        peer.send({"c": "publish", "t": "offices", "cid": "1", "a": "processed"}, b'{"staff":4}')
        ack, _ = peer.receive()
        assert (ack["reason"], ack["detail"]) == ("invalid sow key", "the message has no region")
    with running_server(tmp_path, elements=ELEMENTS) as server, server.log_on() as peer:
        peer.send({"c": "sow", "t": "offices", "cid": "1", "bs": 10})
        assert peer.receive()[0]["c"] == "group_begin"
        _, batch = peer.receive()
        assert sorted(re.findall(rb'"k":"([a-z-]+)".*?"staff":(\d)', batch)) == [
            (b"region-east", b"2"),
            (b"region-west", b"3"),
        ]
        assert peer.receive()[0]["c"] == "group_end"
        body = b'{"region":"west"}'
        peer.send({"c": "sow_delete", "t": "offices", "cid": "2", "a": "stats"}, body)
        assert peer.receive()[0]["records_deleted"] == 1
