"""Whatever stands in the place of a bookmark: an ack or messages, never silence.

Strings are made from the pieces of the grammar, put together rightly and wrongly.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.support.raw import RawPeer, frame
from tests.support.server import RunningServer, running_server

LOG = """
<TransactionLog>
  <JournalDirectory>journal</JournalDirectory><JournalSize>10MB</JournalSize>
  <Topic><Name>^log-</Name><MessageType>json</MessageType></Topic>
</TransactionLog>
"""
MESSAGES = 50
STRANGE = (
    *(
        "",
        " ",
        "|",
        "||",
        "0|",
        "1|",
        "|1|",
        "0|1",
        "0|1|2|",
        "-1|1|",
        "1|-1|",
        "1.5|2|",
        "NaN",
        "null",
    ),
    *("99999999999999999999|1|", "18446744073709551616|1|", "1|18446744073709551616|", "9" * 400),
    *(
        "0" * 30 + "|" + "0" * 30 + "|",
        "\u0661|\u0662|",
        "0|1|\x00",
        "\x7f",
        "é|1|",
        "0x10|1|",
        "1e3|1|",
    ),
    *("20201301T000000", "20200230T000000Z", "20200101T256060", "20200101", "T", "00000000T000000"),
    *("20200101T000000.1234567Z", "99991231T235959Z", "00010101T000000Z", "20200101T000000+01:00"),
)
OPTIONS = ("", "", "", "live", "fully_durable", "rate=1000000", "bookmark_not_found=epoch")
MORE_OPTIONS = (
    "bookmark_not_found=fail",
    "replace",
    "conflation=1ms,conflation_key=[/id]",
    "pause",
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server with some messages, half of them without sequence numbers."""
    with running_server(tmp_path_factory.mktemp("server"), elements=LOG) as running:
        with running.log_on("publisher") as peer:
            for number in range(MESSAGES):
                keys = {"s": number + 1} if number % 2 else {}
                peer.send({"c": "publish", "t": "log-a"} | keys, b'{"id":%d}' % number)
            peer.ask({"c": "flush", "cid": "f", "a": "persisted"})
        yield running


def known_bookmarks(server: RunningServer) -> list[str]:
    """The bookmarks of all messages."""
    with server.log_on("knower") as peer:
        peer.subscribe("log-a", "k", bm="0")
        return [peer.receive()[0]["bm"] for _ in range(MESSAGES)]


class Grammar:
    """Makes things that look like bookmarks.

    Args:
        chance: decides.
        known: bookmarks of messages that there are.
    """

    def __init__(self, chance: random.Random, known: list[str]) -> None:
        self._chance = chance
        self._known = known

    def point(self) -> str:
        """One bookmark."""
        chance = self._chance
        return chance.choice(
            (
                "0",
                "0|1|",
                chance.choice(self._known),
                chance.choice(self._known)[:-1],
                f"{chance.randrange(1 << 64)}|{chance.randrange(1 << 64)}|",
                f"20{chance.randrange(100):02}0102T030405{chance.choice(('', 'Z', '.5', '.5Z'))}",
                chance.choice(STRANGE),
            )
        )

    def points(self) -> str:
        """A list of bookmarks."""
        return self._chance.choice((",", ",", ", ", ",,", ";")).join(
            self.point() for _ in range(self._chance.choice((1, 1, 1, 2, 3, 20)))
        )

    def bookmark(self) -> str:
        """A list or a range; now and then with something changed."""
        chance = self._chance
        text = self.points()
        if chance.random() < 0.6:
            colon = chance.choice((":", ":", ":", " : ", "", "::", "-"))
            text = f"{chance.choice('[(')}{text}{colon}{self.points()}{chance.choice('])')}"
        if chance.random() < 0.2:
            place = chance.randrange(len(text) + 1)
            text = (
                text[:place] + chance.choice("[](),:|0Z \t") + text[place + chance.randrange(2) :]
            )
        return text


def answers(peer: RawPeer, bookmark: str, options: str, number: int) -> None:
    """Ask for a replay, and see that it is begun or refused, and that all goes on after it."""
    sub_id = f"s{number}"
    header = {"c": "subscribe", "cid": sub_id, "sub_id": sub_id, "t": "log-a", "bm": bookmark}
    peer.send(header | {"o": options, "a": "processed,completed"})
    got, _ = peer.receive()
    assert got["c"] == "ack"
    assert got["a"] == "processed"
    assert got["cid"] == sub_id
    if got["status"] == "failure":
        assert got["reason"] in ("invalid bookmark", "bookmark not found")
        assert got["detail"]
    messages = 0
    peer.socket.sendall(
        frame({"c": "unsubscribe", "sub_id": sub_id, "cid": "u"})
        + frame({"c": "flush", "cid": f"f{number}", "a": "completed"})
    )
    while (got := peer.receive()[0]).get("cid") != f"f{number}":
        assert got["c"] == "p" or got["a"] == "completed", got
        messages += got["c"] == "p"
        assert messages <= MESSAGES
    assert got["status"] == "success"


@pytest.mark.parametrize("seed", range(4))
def test_every_bookmark_gets_an_answer(server: RunningServer, seed: int) -> None:
    """And the server goes on as if nothing had been."""
    chance = random.Random(seed)
    grammar = Grammar(chance, known_bookmarks(server))
    with server.log_on(f"fuzzer-{seed}") as peer:
        for number in range(150):
            options = chance.choice(OPTIONS + MORE_OPTIONS)
            bookmark = grammar.bookmark()
            try:
                answers(peer, bookmark, options, number)
            except (TimeoutError, EOFError, AssertionError) as problem:
                raise AssertionError(f"bookmark {bookmark!r}, options {options!r}") from problem
    assert "Traceback" not in server.log()
    assert "01-0004" not in server.log()
