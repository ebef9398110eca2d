"""Journals that are full after a few messages, and what actions do to them."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.support.raw import frame
from tests.support.server import RunningServer
from tests.support.waiting import wait_until

BODY = 1_000_000
PER_FILE = 10
"""Messages that fit into a file of 10 MB."""

WEEK = 7 * 86_400.0


def on_topic(verb: str) -> str:
    """An action that does something to journals as old as a message says."""
    return f"""
      <Action>
        <On>
          <Module>amps-action-on-publish-message</Module>
          <Options><Topic>{verb}</Topic><MessageType>json</MessageType></Options>
        </On>
        <Do>
          <Module>amps-action-do-{verb}-journal</Module>
          <Options><Age>{{{{AMPS_DATA}}}}</Age></Options>
        </Do>
        <Do>
          <Module>amps-action-do-echo-message</Module>
          <Options><Message>{verb} marked</Message></Options>
        </Do>
      </Action>
    """


def fill(server: RunningServer, first: int, last: int, topic: str = "orders") -> None:
    """Publish messages with numbers, and wait until they are safe."""
    with server.connect() as peer:
        logon = {"c": "logon", "cid": "1", "client_name": "filler", "mt": "json"}
        peer.ask(logon | {"a": "processed", "o": "ack_conflation=10ms"})
        for number in range(first, last + 1):
            peer.socket.sendall(
                frame({"c": "publish", "t": topic, "s": number, "a": "persisted"}, body(number))
            )
        while peer.receive()[0]["s"] < last:
            pass


def body(number: int) -> bytes:
    """A message that takes some time to compress."""
    return b'{"n":%d,"x":"%b"}' % (number, os.urandom(BODY // 20).hex().encode() * 10)


def number_of(message: bytes) -> int:
    """The number in a message."""
    return int(message[5 : message.index(b",")])


def tell(server: RunningServer, verb: str, age: str) -> None:
    """Have an action run."""
    with server.log_on("operator") as peer:
        peer.publish(verb, age.encode())
        peer.flush()


def make_old(path: Path) -> None:
    """Let a full file be a week old, when the server has written to it for the last time."""
    wait_until(path.with_suffix(".index.gz").exists)
    moment = time.time() - WEEK
    os.utime(path, (moment, moment))


def journals(directory: Path) -> set[str]:
    """The journal files in a directory, by number and form."""
    return {
        path.name.removeprefix("test-instance.00000000") for path in directory.glob("*.journal*")
    }
