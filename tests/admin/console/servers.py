"""Servers that the console is shown of: with some of everything, and somebody who uses it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.admin.support import Admin, running_admin
from tests.support.raw import RawPeer
from tests.support.server import free_port

WEBSOCKET: Final = """
<Transport>
  <Name>any-ws</Name><Type>tcp</Type><InetAddr>127.0.0.1:{port}</InetAddr>
  <Protocol>websocket</Protocol>
</Transport>
"""

SQL: Final = """
<Transport>
  <Name>sql</Name><Type>tcp</Type><InetAddr>127.0.0.1:{port}</InetAddr>
  <Protocol>postgresql</Protocol>
</Transport>
"""

DASHBOARDS: Final = 7
"""Clients that subscribe to two topics, and read what they are sent only with their sockets."""

PAUSE_SECONDS: Final = 0.02
"""Between two orders."""

ODD_NAME: Final = "<script>alert(1)</script>"

ELEMENTS: Final = """
<Description>Orders of the northern shops</Description>
<Environment>test</Environment>
<SOW>
  <Topic>
    <Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>orders.sow</FileName>
  </Topic>
  <Topic>
    <Name>customers</Name><MessageType>json</MessageType><Key>/id</Key>
    <Durability>transient</Durability>
  </Topic>
  <Topic>
    <Name>&lt;script&gt;alert(1)&lt;/script&gt;</Name><MessageType>json</MessageType>
    <Key>/id</Key><Durability>transient</Durability>
  </Topic>
  <View>
    <Name>totals</Name><MessageType>json</MessageType><UnderlyingTopic>orders</UnderlyingTopic>
    <Projection>
      <Field>/shop AS /shop</Field><Field>SUM(/price) AS /total</Field>
      <Field>COUNT(/id) AS /orders</Field>
    </Projection>
    <Grouping><Field>/shop</Field></Grouping>
  </View>
  <ConflatedTopic>
    <Name>orders-slow</Name><MessageType>json</MessageType>
    <UnderlyingTopic>orders</UnderlyingTopic><Interval>500ms</Interval>
  </ConflatedTopic>
  <Queue>
    <Name>shipping</Name><MessageType>json</MessageType><UnderlyingTopic>to-ship</UnderlyingTopic>
    <Semantics>at-least-once</Semantics>
  </Queue>
</SOW>
<Actions>
  <Action>
    <On>
      <Module>amps-action-on-schedule</Module>
      <Options><Every>2s</Every><Name>tidy</Name></Options>
    </On>
    <Do>
      <Module>amps-action-do-delete-sow</Module>
      <Options>
        <MessageType>json</MessageType><Topic>customers</Topic><Filter>/gone = 1</Filter>
      </Options>
    </Do>
  </Action>
  <Action>
    <On>
      <Module>amps-action-on-admin</Module>
      <Options>
        <Path>note</Path><Name>Note in the log</Name>
        <Description>Writes a line for those who read the log</Description>
        <RequiredParameter>text</RequiredParameter>
      </Options>
    </On>
    <Do>
      <Module>amps-action-do-echo-message</Module><Options><Message>{{text}}</Message></Options>
    </Do>
  </Action>
</Actions>
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>orders|shipping|to-ship</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""


@dataclass(frozen=True)
class Shop:
    """A server with some of everything.

    Attributes:
        admin: its admin interface.
        publisher: publishes to it.
        consumer: has a message of the queue.
    """

    admin: Admin
    publisher: RawPeer
    consumer: RawPeer

    def publish(self, count: int, topic: str = "orders") -> None:
        """Publish some records."""
        for number in range(count):
            self.publisher.send(
                {"c": "publish", "t": topic},
                b'{"id":%d,"shop":"shop %d","price":%d}' % (number, number % 7, number),
            )


@contextmanager
def _traffic(admin: Admin) -> Iterator[None]:
    """Orders that come all the time."""
    ended = threading.Event()

    def publish() -> None:
        with admin.server.log_on("order-stream") as stream:
            for number in itertools.count():
                body = b'{"id":%d,"shop":"shop %d","price":%d}' % (number % 50, number % 7, number)
                stream.send({"c": "publish", "t": "orders"}, body)
                if ended.wait(PAUSE_SECONDS):
                    return

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def running_shop(directory: Path, section: str = "") -> Iterator[Shop]:
    """A server with some of everything.

    Args:
        directory: where it runs.
        section: further elements of its Admin section.
    """
    with ExitStack() as stack:
        admin = stack.enter_context(
            running_admin(
                directory,
                f"<SQLTransport>any-ws</SQLTransport>{section}",
                ELEMENTS,
                transports=WEBSOCKET.format(port=free_port()) + SQL.format(port=free_port()),
            )
        )
        publisher = stack.enter_context(admin.server.log_on("order-feed"))
        consumer = stack.enter_context(admin.server.log_on("packing-table"))
        for number in range(DASHBOARDS):
            dashboard = stack.enter_context(admin.server.log_on(f"dashboard-{number}"))
            filter_ = f"/shop = 'shop {number}'"
            dashboard.send({"c": "subscribe", "cid": "1", "t": "orders", "filter": filter_})
            dashboard.send({"c": "subscribe", "cid": "2", "t": "totals", "opts": "oof"})
        stack.enter_context(_traffic(admin))
        shop = Shop(admin, publisher, consumer)
        shop.publish(50)
        shop.publish(5, ODD_NAME)
        shop.publish(20, "to-ship")
        yield shop
