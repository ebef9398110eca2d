"""The page of replication, at instances that replicate, and one that nobody has met."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.admin.console.browser import NARROW, WIDE, Browser
from tests.admin.support import ask, running_admin
from tests.replication.topologies import Topology, both
from tests.support.cluster import cluster
from tests.support.server import free_port
from tests.support.waiting import wait_until

ADMIN: Final = "<Admin><InetAddr>127.0.0.1:{port}</InetAddr><Interval>1s</Interval></Admin>"

ALL: Final = Topology("all", both(("paris", "oslo"), ("oslo", "rome"), ("paris", "rome")), ())
"""Each replicates to each."""

NEVER_MET: Final = """
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
<Replication>
  <Destination>
    <Name>far-away</Name><Group>far</Group><SyncType>async</SyncType>
    <Topic><Name>orders</Name><MessageType>json</MessageType></Topic>
    <Transport><Type>amps-replication</Type><InetAddr>127.0.0.1:{port}</InetAddr></Transport>
  </Destination>
</Replication>
"""


def test_other_instances_are_pictured_and_asked(
    browser: Browser, tmp_path: Path, pictures: Path | None
) -> None:
    browser.logs_are_expected = True  # browsers log whom they cannot reach
    ports = {name: free_port() for name in ALL.instances}
    of_each = {name: ADMIN.format(port=port) for name, port in ports.items()}
    with cluster(tmp_path, ALL, of_each=of_each) as instances:
        instances.start()
        other = f"http://127.0.0.1:{ports['oslo']}"
        wait_until(lambda: other in ask(ports["paris"], "/").headers["content-security-policy"])
        browser.port = ports["paris"]
        browser.open("replication")
        browser.until(lambda: browser.count(".picture a .node") == 2)
        browser.shows(".picture a .node", "ready")
        browser.shows(".picture .edge", "in step")
        browser.shows("tr[data-id='paris!oslo']", "replicating")
        assert browser.complaints() == []
        assert browser.inaccessible() == []
        if pictures is not None:
            browser.picture(pictures / "replication.png", WIDE)
            browser.picture(pictures / "replication-narrow.png", NARROW, 844)
        instances["oslo"].kill()
        browser.shows(".picture .node.bad", "unreachable")
        browser.shows(".picture .node.bad", "unreachable from this browser")
        browser.close_page()


def test_a_destination_that_was_never_met_is_pictured(browser: Browser, tmp_path: Path) -> None:
    with running_admin(tmp_path, elements=NEVER_MET.format(port=free_port())) as admin:
        browser.port = admin.port
        browser.open("replication")
        browser.shows(".picture .missing", "far-away")
        browser.shows(".picture .missing", "never connected")
        browser.shows(".picture .edge.bad", "not connected")
        assert browser.inaccessible() == []
        browser.find("tr[data-id]").click()
        browser.shows("aside h2", "to far-away")
        assert browser.complaints() == []
        browser.close_page()
