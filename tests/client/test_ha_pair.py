"""Clients that stay connected, with two instances that replicate to each other."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest

from amperage.client import (
    EPOCH,
    NOW,
    FileBookmarkStore,
    FilePublishStore,
    ServerChooser,
)
from tests.cli.test_spark import start
from tests.client.shells import PATIENT, NewHAClient
from tests.recovery.test_failover import replay
from tests.support.cluster import PAIR, Cluster, cluster
from tests.support.waiting import WAIT_SECONDS, wait_until


def bodies(numbers: range) -> list[bytes]:
    return [b'{"id":%d}' % number for number in numbers]


@pytest.mark.timeout(300)
def test_a_program_and_its_instance_die_at_once(new_ha_client: NewHAClient, tmp_path: Path) -> None:
    """What it left in its stores is taken up by the next run, at the other instance."""
    messages, bookmarks = tmp_path / "messages", tmp_path / "bookmarks"

    async def run(uris: list[str], numbers: range, take: int, *, is_last: bool) -> list[bytes]:
        with FilePublishStore(messages) as store, FileBookmarkStore(bookmarks) as places:
            client = new_ha_client(
                ServerChooser(uris, "in_order"),
                "program",
                backoff=PATIENT,
                timeout=WAIT_SECONDS,
                publish_store=store,
                bookmark_store=places,
            )
            async with client:
                await client.connect()
                stream = await client.subscribe("orders", bookmark="recent", sub_id="mine")
                await client.publish_all("orders", bodies(numbers))
                taken = [(await anext(stream)).body for _ in range(take)]
                await stream.done()
                if is_last:
                    await client.flush()
                return taken

    with cluster(tmp_path / "pair", PAIR) as pair:
        one, other = pair
        pair.start()
        uris = pair.uris("A", "B")
        taken = asyncio.run(run(uris, range(500), 300, is_last=False))
        one.kill()
        one.start()
        other.kill()
        other.start()
        taken += asyncio.run(run(uris, range(500, 1_000), 700, is_last=True))
        assert taken == bodies(range(1_000))
        for instance in pair:
            assert replay(instance.server) == bodies(range(1_000))


@pytest.mark.parametrize("start", [NOW, EPOCH])
@pytest.mark.timeout(300)
def test_a_subscription_that_moves_misses_nothing_of_the_other_instance(
    new_ha_client: NewHAClient, tmp_path: Path, start: str
) -> None:
    """What was published there before it comes, and never got to where it was; nor what it was
    sent, to there. Also if no message has come at all, and no second has passed."""

    async def scenario(pair: Cluster) -> None:
        one, other = pair
        with one.server.log_on("early") as peer:
            peer.publish("orders", b'{"id":1}')
        wait_until(lambda: replay(other.server) == bodies(range(1, 2)))
        pair.network.part("A", "B")
        with one.server.log_on("one") as here, other.server.log_on("other") as there:
            there.publish("orders", b'{"id":2}')
            wait_until(lambda: replay(other.server)[-1:] == [b'{"id":2}'])
            uris = ServerChooser(pair.uris("A", "B"), "in_order")
            async with new_ha_client(uris, backoff=PATIENT, timeout=WAIT_SECONDS) as client:
                await client.connect()
                stream = await client.subscribe("orders", bookmark=start)
                expected = bodies(range(2, 4))
                if start == EPOCH:
                    here.publish("orders", b'{"id":100}')
                    assert [(await anext(stream)).body for _ in range(2)] == [
                        *(b'{"id":1}', b'{"id":100}'),
                    ]
                one.kill()
                there.publish("orders", b'{"id":3}')
                got: list[bytes] = []
                while expected[-1] not in got:
                    got.append((await anext(stream)).body)
                assert [body for body in got if body != b'{"id":1}'] == expected

    with cluster(tmp_path, PAIR) as pair:
        pair.start()
        asyncio.run(scenario(pair))


@pytest.mark.timeout(300)
def test_the_command_goes_on_at_the_other_instance(tmp_path: Path) -> None:
    """What it was given to publish is there once, and what is published is printed."""
    with cluster(tmp_path, PAIR) as pair:
        one, other = pair
        pair.start()
        at = ("-server", f"127.0.0.1:{one.port},127.0.0.1:{other.port}", "-type", "json")
        publisher = start("publish", *at, "-topic", "orders", "-rate", "500")
        assert publisher.stdin is not None
        publisher.stdin.write(b"\n".join(bodies(range(1_000))))
        publisher.stdin.flush()
        wait_until(lambda: len(replay(other.server)) > 100)
        follower = start("subscribe", *at, "-topic", "orders", "-filter", "/id = 1000000")
        assert follower.stdout is not None
        wait_until(lambda: "1000000" in one.server.log())
        one.kill()
        wait_until(lambda: "1000000" in other.server.log())
        one.start()
        said, complaint = publisher.communicate(timeout=WAIT_SECONDS)
        assert (publisher.returncode, complaint) == (0, b"")
        assert said.startswith(b"total messages published: 1000 (")
        for instance in pair:
            wait_until(lambda: len(replay(instance.server)) >= 1_000)  # noqa: B023 - called at once
            assert replay(instance.server) == bodies(range(1_000))
        with one.server.log_on("late") as peer:
            peer.publish("orders", json.dumps({"id": 1_000_000}).encode())
            assert follower.stdout.readline() == b'{"id": 1000000}\n'
        follower.send_signal(signal.SIGINT)
        follower.communicate(timeout=WAIT_SECONDS)
        assert follower.returncode == 130
