"""Bookmark subscriptions, with a log that commits when told to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.replaying import messages, publish, subscribe
from tests.engine.support import Core


@pytest.fixture
def core(tmp_path: Path) -> Iterator[Core]:
    """An engine with a transaction log."""
    core = Core()
    core.record(tmp_path, "^log-")
    yield core
    core.transaction_log.close()


def test_only_live_subscribers_hear_of_what_is_not_safe(core: Core) -> None:
    """Of two messages that are not safe when it begins it hears when they are, and in order."""
    publisher, peer = core.log_on("publisher"), core.log_on()
    publish(publisher, "log-a", b"1", b"2")
    subscribe(peer, "live", "log-a", "0", "live")
    subscribe(peer, "safe", "log-a", "0")
    subscribe(peer, "settled", "log-a", "0", "fully_durable")
    publish(publisher, "log-a", b"3")
    assert messages(peer) == []
    core.commit()
    came = messages(peer)
    for sub_id in ("live", "safe", "settled"):
        assert [body for ids, body in came if sub_id in ids] == [b"1", b"2", b"3"]
    publish(publisher, "log-a", b"4")
    assert messages(peer) == [("live", b"4")]
    core.commit()
    assert sorted(messages(peer)) == [("safe", b"4"), ("settled", b"4")]


@pytest.mark.parametrize("acks", ["processed,completed", "processed"])
def test_a_replay_that_cannot_be_read_for_too_long_fails(
    core: Core, tmp_path: Path, acks: str
) -> None:
    """Its client is told in the ack that it waits for, or else by the end of its connection."""
    publisher, peer = core.log_on("publisher"), core.log_on("reader")
    publish(publisher, "log-a", b"1")
    core.commit()
    journals = list(tmp_path.rglob("*.journal"))
    for journal in journals:
        journal.rename(journal.with_suffix(".aside"))
    peer.send({"c": "subscribe", "cid": "c", "sub_id": "s", "t": "log-a", "bm": "0", "a": acks})
    (accepted,) = peer.take_frames()
    assert (accepted[0]["a"], accepted[0]["status"]) == ("processed", "success")
    core.clock.advance(20)
    assert (peer.take_frames(), peer.hung_up) == ([], False)
    core.clock.advance(20)
    if "completed" in acks:
        ((ack, _),) = peer.take_frames()
        assert (ack["a"], ack["status"], ack["reason"]) == ("completed", "failure", "replay failed")
        assert "the transaction log cannot be read: " in ack["detail"]
        assert not peer.hung_up
    else:
        assert peer.hung_up
    said = [one for one, _ in core.log.entries if one.startswith("1D-")]
    assert said == ["1D-0013", "1D-0013", "1D-0014"]
    for journal in journals:
        journal.with_suffix(".aside").rename(journal)
    again = core.log_on("again")
    subscribe(again, "s", "log-a", "0")
    assert messages(again) == [("s", b"1")]


def test_what_is_not_safe_when_a_live_replay_has_caught_up_comes_in_its_place(core: Core) -> None:
    """Before messages that the topic has delivered meanwhile, which wait for it."""
    publisher, peer = core.log_on("publisher"), core.log_on()
    publish(publisher, "log-a", b"1")
    core.commit()
    peer.is_behind = True
    subscribe(peer, "live", "log-a", "0", "live")
    publish(publisher, "log-a", b"2")
    peer.is_behind = False
    core.clock.advance(0.1)
    assert messages(peer) == [("live", b"1")]
    publish(publisher, "log-a", b"3")
    assert messages(peer) == []
    core.commit()
    assert messages(peer) == [("live", b"2"), ("live", b"3")]
    publish(publisher, "log-a", b"4")
    assert messages(peer) == [("live", b"4")]


def test_a_live_subscriber_who_does_not_keep_up_reads_the_log_again(core: Core) -> None:
    """Before it has got to the end; what waits for that is bounded."""
    publisher, peer = core.log_on("publisher"), core.log_on()
    publish(publisher, "log-a", b"1")
    subscribe(peer, "live", "log-a", "0", "live")
    large = [b"%d" % n + b"x" * 100_000 for n in range(12)]
    publish(publisher, "log-a", *large[:6])
    peer.is_behind = True
    core.commit()
    publish(publisher, "log-a", *large[6:])
    peer.is_behind = False
    core.clock.advance(1)
    core.commit()
    assert [body for _, body in messages(peer)] == [b"1", *large]
    publish(publisher, "log-a", b"2")
    assert messages(peer) == [("live", b"2")]


def test_conflation_goes_by_the_time_of_the_messages(core: Core) -> None:
    """A replay of seconds gives at once what a subscriber would have got in those seconds."""
    publisher, peer = core.log_on("publisher"), core.log_on()
    for moment, key, value in ((0.0, 1, 1), (0.3, 1, 2), (0.4, 2, 3), (1.1, 1, 4), (1.2, 1, 5)):
        core.clock.advance(1_000_000 + moment - core.clock.now())
        publish(publisher, "log-c", b'{"k":%d,"v":%d}' % (key, value))
    core.clock.advance(5)
    core.commit()
    subscribe(peer, "c", "log-c", "0", "timestamp,conflation=1s,conflation_key=[/k]")
    frames = [(head, json.loads(body)["v"]) for head, body in peer.take_frames()[:-1] if body]
    assert [value for _, value in frames] == [2, 3, 5]
    subscribe(peer, "all", "log-c", "0", "timestamp")
    heads = [head for head, body in peer.take_frames() if body]
    assert [(head["bm"], head["ts"]) for head, _ in frames] == [
        (heads[index]["bm"], heads[index]["ts"]) for index in (0, 2, 3)
    ]


def test_conflation_goes_on_with_real_time_when_the_replay_has_caught_up(core: Core) -> None:
    """Then a message waits for its interval; a range that ends lets everything go."""
    publisher, peer = core.log_on("publisher"), core.log_on()
    subscribe(peer, "c", "log-c", "0|1|", "conflation=1s,conflation_key=[/k]")
    publish(publisher, "log-c", b'{"k":1,"v":1}', b'{"k":1,"v":2}')
    core.commit()
    core.clock.advance(0.9)
    assert messages(peer) == []
    core.clock.advance(0.2)
    assert messages(peer) == [("c", b'{"k":1,"v":2}')]
    peer.send({"c": "unsubscribe", "sub_id": "c"})
    subscribe(peer, "c", "log-c", "[0:0|1|]", "conflation=1s,conflation_key=[/k]")
    frames = peer.take_frames()
    assert [head["c"] for head, _ in frames] == ["ack", "p", "ack"]
    assert frames[1][1] == b'{"k":1,"v":2}'


@pytest.mark.parametrize(
    ("bookmark", "last"),
    [("0", 0), ("[0:0|1|]", 0), ("0", 2_000)],
    ids=["caught up", "a range", "due on the way"],
)
def test_what_a_replay_conflates_leaves_in_slices(core: Core, bookmark: str, last: int) -> None:
    """Of very many keys, whether they fall due together or the replay is complete."""
    keys = 2000
    publisher, peer = core.log_on("publisher"), core.log_on()
    publish(publisher, "log-c", *(b'{"k":%d}' % number for number in range(keys)))
    core.clock.advance(5)
    publish(publisher, "log-c", *(b'{"k":%d}' % number for number in range(bool(last))))
    core.clock.advance(5)
    core.commit()
    core.clock.work_per_look = 0.001  # from now on, each slice is a turn of its own
    peer.take_frames()
    options = "conflation=1s,conflation_key=[/k]"
    header = {"c": "subscribe", "cid": "x", "sub_id": "c", "t": "log-c", "bm": bookmark}
    peer.send(header | {"o": options, "a": "completed"})
    heard: list[str] = []
    while not heard or heard[-1] != "completed":
        core.engine.flush()
        some = [head.get("a", head["c"]) for head, _ in peer.take_frames()]
        assert len(some) <= 600
        heard += some
        core.clock.turn()
        core.clock.time += 0.001
    assert heard.count("p") == keys + bool(last)


def test_what_is_resumed_together_is_read_together(core: Core) -> None:
    """One message for those that agree in form and place; those that do not read for themselves."""
    publisher, peer = core.log_on("publisher"), core.log_on()
    publish(publisher, "log-a", b"1")
    publish(publisher, "log-b", b"2")
    core.commit()
    subscribe(peer, "a", "log-a", "0", "pause")
    subscribe(peer, "b", "^log-", "0", "pause")
    subscribe(peer, "c", "log-b", "0", "pause,timestamp")
    subscribe(peer, "d", "log-b", "0", "pause,rate=1000000")
    subscribe(peer, "e", "log-b", "0|1|", "pause")
    assert messages(peer) == []
    peer.send({"c": "subscribe", "cid": "x", "sub_id": "a,b,c,d,e", "o": "resume"})
    assert messages(peer) == [("a,b", b"1"), ("b", b"2"), ("c", b"2"), ("d", b"2")]
    peer.send({"c": "subscribe", "cid": "x", "sub_id": "a,b", "o": "pause"})
    publish(publisher, "log-a", b"3")
    core.commit()
    publish(publisher, "log-a", b"4")
    core.commit()
    peer.send({"c": "subscribe", "cid": "x", "sub_id": "a", "o": "resume"})
    assert messages(peer) == [("a", b"3"), ("a", b"4")]
    peer.send({"c": "subscribe", "cid": "x", "sub_id": "b", "o": "resume"})
    assert messages(peer) == [("b", b"3"), ("b", b"4")]


def test_whoever_asks_for_a_bookmark_waits_for_the_search(core: Core) -> None:
    """The search sees what had been recorded; what ends meanwhile is not begun."""
    publisher, peer = core.log_on("publisher"), core.log_on()
    subscribe(peer, "live", "log-a", "0|1|", "live")
    for sequence in (1, 2):
        publisher.send({"c": "publish", "t": "log-a", "s": sequence}, b"%d" % sequence)
    core.commit()
    publisher.send({"c": "publish", "t": "log-a", "s": 3}, b"3")
    bookmarks = [head["bm"] for head, body in peer.take_frames() if body]
    subscribe(peer, "found", "log-a", bookmarks[0])
    subscribe(peer, "gone", "log-a", bookmarks[0])
    subscribe(peer, "fails", "log-a", "1|1|", "bookmark_not_found=fail")
    subscribe(peer, "now", "log-a", "1|1|")
    assert peer.take_frames() == []
    peer.send({"c": "unsubscribe", "sub_id": "gone"})
    publisher.send({"c": "publish", "t": "log-a", "s": 4}, b"4")
    core.commit()
    for _ in range(4):
        core.wait_for_helper()
    frames = peer.take_frames()
    assert [(head["sids"], body) for head, body in frames if body and "live" not in head["sids"]]
    by_id: dict[str, list[Any]] = {}
    for head, body in frames:
        for sub_id in head.get("sids", head.get("sub_id") or head.get("cid", "")).split(","):
            by_id.setdefault(sub_id, []).append(body or head["a"] + ":" + head["status"])
    assert by_id["found"] == ["processed:success", b"2", b"3", b"4", "completed:success"]
    assert by_id["now"] == ["processed:success", b"4", "completed:success"]
    assert by_id["fails"] == ["processed:failure"]
    assert "gone" not in by_id


def test_who_falls_behind_the_end_of_the_log_reads_for_itself(core: Core) -> None:
    """The others are not held up, and nothing is lost."""
    publisher, slow, quick = core.log_on("publisher"), core.log_on("slow"), core.log_on("quick")
    for peer in (slow, quick):
        subscribe(peer, "r", "log-a", "0|1|")
    slow.is_behind = True
    publish(publisher, "log-a", b"1", b"2")
    core.commit()
    assert messages(slow) == []
    assert messages(quick) == [("r", b"1"), ("r", b"2")]
    slow.is_behind = False
    core.clock.advance(1)
    assert messages(slow) == [("r", b"1"), ("r", b"2")]
    publish(publisher, "log-a", b"3")
    core.commit()
    assert messages(slow) == messages(quick) == [("r", b"3")]


def test_the_log_is_kept_for_those_who_have_not_read_it(core: Core) -> None:
    """Wherever they are; whoever is done, or has gone, needs nothing any more."""
    publisher, peer = core.log_on("publisher"), core.log_on()
    log = core.transaction_log
    publish(publisher, "log-a", b"1", b"2")
    core.commit()
    nobody = log.last_txid + 1
    subscribe(peer, "range", "log-a", "[0:0|1|]")
    subscribe(peer, "tail", "log-a", "0")
    subscribe(peer, "live", "log-a", "0", "live")
    assert log.needed_from == nobody
    subscribe(peer, "paused", "log-a", "0", "pause")
    assert log.needed_from == log.journal.first_txid
    peer.send({"c": "unsubscribe", "sub_id": "paused"})
    assert log.needed_from == nobody
    peer.is_behind = True
    publish(publisher, "log-a", b"3")
    core.commit()
    assert log.needed_from == nobody
    peer.leave()
    assert log.needed_from == nobody + 1


def test_the_log_is_kept_while_a_bookmark_is_searched_for(core: Core) -> None:
    publisher, peer = core.log_on("publisher"), core.log_on()
    log = core.transaction_log
    subscribe(peer, "live", "log-a", "0|1|", "live")
    for sequence in (1, 2):
        publisher.send({"c": "publish", "t": "log-a", "s": sequence}, b"%d" % sequence)
    core.commit()
    bookmark = next(head["bm"] for head, body in peer.take_frames() if body == b"1")
    subscribe(peer, "r", "log-a", bookmark, "bookmark_not_found=fail")
    assert log.needed_from == log.journal.first_txid
    core.wait_for_helper()
    assert messages(peer) == [("r", b"2")]
    assert log.needed_from == log.last_txid + 1


def test_a_file_that_is_removed_while_a_bookmark_is_searched_for_leaves_no_gap(core: Core) -> None:
    """Its removal had begun before the search, which begins when it is over."""
    publisher, peer = core.log_on("publisher"), core.log_on()
    journal = core.transaction_log.journal
    subscribe(peer, "live", "log-a", "0|1|", "live")
    for sequence in range(1, 26):
        publisher.send({"c": "publish", "t": "log-a", "s": sequence}, b"x" * 100_000)
    core.commit()
    bookmark = next(head["bm"] for head, body in peer.take_frames() if body)
    peer.send({"c": "unsubscribe", "sub_id": "live"})
    peer.take_frames()
    with core.transaction_log.during_removal():
        subscribe(peer, "r", "log-a", bookmark, "bookmark_not_found=fail")
        journal.remove(journal.files[0].number)
    core.wait_for_helper()
    [(ack, _)] = peer.take_frames()
    assert (ack["a"], ack["reason"]) == ("processed", "bookmark not found")
    assert ack["status"] == "failure"


def test_a_search_that_waits_for_stable_storage_keeps_no_files(core: Core) -> None:
    """A disk that is full could not be freed otherwise."""
    publisher, peer = core.log_on("publisher"), core.log_on()
    log = core.transaction_log
    subscribe(peer, "live", "log-a", "0|1|", "live")
    publisher.send({"c": "publish", "t": "log-a", "s": 1}, b"1")
    core.commit()
    bookmark = next(head["bm"] for head, body in peer.take_frames() if body)
    publisher.send({"c": "publish", "t": "log-a", "s": 2}, b"2")
    subscribe(peer, "r", "log-a", bookmark, "bookmark_not_found=fail")
    assert log.needed_from == log.last_txid + 1
    core.commit()
    core.wait_for_helper()
    assert messages(peer)[-1] == ("r", b"2")


RATES = (
    # option, when each of five messages comes: published at 0, 1, 2, 12 and 13 seconds
    ("rate=2", (0.0, 0.5, 1.0, 1.5, 2.0)),
    ("rate=50B", (0.0, 0.2, 0.4, 0.6, 0.8)),  # ten bytes each
    ("rate=1X", (0.0, 1.0, 2.0, 12.0, 13.0)),
    ("rate=10x", (0.0, 0.1, 0.2, 1.2, 1.3)),
    ("rate=.5X", (0.0, 2.0, 4.0, 24.0, 26.0)),
    ("rate=2X,rate_max_gap=1s", (0.0, 0.5, 1.0, 2.0, 2.5)),
    ("rate=0.1,rate_max_gap=1s", None),
)


@pytest.mark.parametrize(("option", "expected"), RATES)
def test_a_rate_holds_messages_back(
    core: Core, option: str, expected: tuple[float, ...] | None
) -> None:
    """By number, by size, or by the time at which they were published."""
    publisher, peer = core.log_on("publisher"), core.log_on()
    began = core.clock.now()
    for number, moment in enumerate((0, 1, 2, 12, 13)):
        core.clock.advance(began + moment - core.clock.now())
        publish(publisher, "log-a", b'{"id": %d} ' % number)
    core.commit()
    began = core.clock.now()
    subscribe(peer, "r", "log-a", "0", option)
    if expected is None:
        assert peer.take_frames()[0][0]["reason"] == "invalid option"
        return
    came: list[float] = []
    while core.clock.now() < began + expected[-1] + 1:
        came += [round(core.clock.now() - began, 2)] * len(messages(peer))
        core.clock.advance(0.01)
    assert len(came) == 5
    assert all(abs(one - other) < 0.05 for one, other in zip(came, expected, strict=True)), came


def test_a_paused_rate_goes_on_where_it_was(core: Core) -> None:
    """What it sent before does not count any more."""
    publisher, peer = core.log_on("publisher"), core.log_on()
    publish(publisher, "log-a", b"1", b"2", b"3")
    core.commit()
    subscribe(peer, "r", "log-a", "0", "rate=1")
    peer.send({"c": "subscribe", "cid": "p", "sub_id": "r", "o": "pause"})
    core.clock.advance(10)
    assert messages(peer) == [("r", b"1")]
    peer.send({"c": "subscribe", "cid": "p", "sub_id": "r", "o": "resume"})
    assert messages(peer) == [("r", b"2")]
    core.clock.advance(1)
    assert messages(peer) == [("r", b"3")]


def test_completed_and_persisted_acks_say_how_far_the_log_has_been_read(core: Core) -> None:
    """By the bookmark of a message, whether or not the subscription is for it."""
    publisher, peer = core.log_on("publisher"), core.log_on()
    publisher.send({"c": "publish", "t": "log-a", "s": 1}, b"1")
    publisher.send({"c": "publish", "t": "log-b", "s": 2}, b"2")
    core.commit()
    keys = {"c": "subscribe", "cid": "r", "sub_id": "r", "t": "log-a", "bm": "0"}
    peer.send(keys | {"a": "completed,persisted"})
    (first, _), (completed, _) = peer.take_frames()
    client = first["bm"].split("|")[0]
    assert (completed["a"], completed["bm"]) == ("completed", f"{client}|2|")
    core.clock.advance(1)
    (persisted, _), *others = peer.take_frames()
    assert (persisted["a"], persisted["sub_id"], persisted["bm"]) == (
        "persisted",
        "r",
        f"{client}|2|",
    )
    assert others == []
    publisher.send({"c": "publish", "t": "log-b", "s": 3}, b"3")
    core.clock.advance(5)
    assert peer.take_frames() == []
    core.commit()
    core.clock.advance(1)
    assert [head["bm"] for head, _ in peer.take_frames()] == [f"{client}|3|"]


def test_a_client_of_a_live_subscription_is_not_waited_for(core: Core) -> None:
    """Its messages are subject to the limits for slow clients, as those of any subscription."""
    publisher, peer = core.log_on("publisher"), core.log_on()
    subscribe(peer, "live", "log-a", "0|1|", "live")
    subscribe(peer, "safe", "log-b", "0|1|")
    peer.is_behind = True
    publish(publisher, "log-a", b"1")
    publish(publisher, "log-b", b"2")
    core.commit()
    assert messages(peer) == [("live", b"1")]


def test_compressed_files_are_read_beside_other_work(core: Core) -> None:
    """The engine does not wait for one to be decompressed; what has been is used by all."""
    publisher, peer = core.log_on("publisher"), core.log_on()
    bodies = [b"%d" % number + b"x" * 100_000 for number in range(25)]
    publish(publisher, "log-a", *bodies)
    core.commit()
    journal = core.transaction_log.journal
    full = [file.number for file in journal.files if file.seal is not None]
    assert len(full) == 2
    for number in full:
        journal.compress(number)
    subscribe(peer, "r", "log-a", "0")
    assert messages(peer) == []
    for _ in full:
        core.wait_for_helper()
    core.clock.advance(1)
    assert [body for _, body in messages(peer)] == bodies
    subscribe(peer, "again", "log-a", "0")
    core.clock.advance(1)
    assert [body for _, body in messages(peer)] == bodies
