"""Stores in files: what they hold outlives processes, whatever is left unfinished."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from hypothesis.stateful import rule

from amperage.client import (
    MOST_RECENT,
    NOW,
    FileBookmarkStore,
    FilePublishStore,
    HAClient,
    StoreError,
)
from amperage.client.bookmarks import BookmarkTrail
from amperage.client.record_log import RecordLog
from tests.client.scripted_peer import accept, scripted_peer
from tests.client.shells import HA_SHELLS, NewHAClient
from tests.client.test_publish_store import StoreMachine
from tests.support.chances import examples

MAGIC = b"TESTLOG1"
HEAD = b'{"c":"p"'
ROOT = Path(__file__).parents[2]


class FileStoreMachine(StoreMachine):
    """The publish store in a file does what the one in memory does, and is there again at once."""

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp()) / "store"
        self.store = FilePublishStore(self.path, capacity=2000)

    @rule(body=st.binary(max_size=300))
    def add(self, body: bytes) -> None:
        super().add(body)
        self.store.commit()

    @rule()
    def reopen(self) -> None:
        self.close()
        self.store = FilePublishStore(self.path, capacity=2000)

    def close(self) -> None:
        assert isinstance(self.store, FilePublishStore)
        self.store.close()

    def teardown(self) -> None:
        self.close()
        shutil.rmtree(self.path.parent)


TestFilePublishStore = FileStoreMachine.TestCase
TestFilePublishStore.settings = settings(
    max_examples=examples(40, 16), stateful_step_count=30, deadline=None
)


def written(path: Path, records: list[bytes]) -> bytes:
    log = RecordLog(path, MAGIC)
    log.append(records)
    log.close()
    return path.read_bytes()


def read(path: Path) -> list[bytes]:
    log = RecordLog(path, MAGIC)
    records = list(log.take_records())
    log.close()
    return records


@settings(max_examples=examples(60), deadline=None)
@given(records=st.lists(st.binary(min_size=1, max_size=60), min_size=1, max_size=6), data=st.data())
def test_of_a_file_that_ends_anywhere_whole_records_are_left(
    tmp_path_factory: pytest.TempPathFactory, records: list[bytes], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    whole = written(path, records)
    end = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:end])
    left = read(path)
    assert left == records[: len(left)]
    assert end == len(whole) or len(left) < len(records)
    assert written(path, [b"behind"])
    assert read(path) == [*left, b"behind"]


@settings(max_examples=examples(60), deadline=None)
@given(records=st.lists(st.binary(min_size=1, max_size=60), min_size=1, max_size=6), data=st.data())
def test_of_a_file_with_zeros_at_its_end_whole_records_are_left(
    tmp_path_factory: pytest.TempPathFactory, records: list[bytes], data: st.DataObject
) -> None:
    """As a power failure leaves a file whose size had been stored, and its last pages not."""
    path = tmp_path_factory.mktemp("log") / "log"
    head = len(written(path, []))
    whole = written(path, records)
    end = data.draw(st.integers(head, len(whole)))
    path.write_bytes(whole[:end] + bytes(len(whole) - end + data.draw(st.integers(0, 100))))
    left = read(path)
    assert left == records[: len(left)]
    assert written(path, [b"behind"])
    assert read(path) == [*left, b"behind"]


@pytest.mark.parametrize("begun", [0, 1, 7])
@pytest.mark.parametrize("zeros", [0, 1, 8, 4096])
def test_a_file_whose_creation_was_interrupted_is_new(
    tmp_path: Path, begun: int, zeros: int
) -> None:
    """A power failure leaves zeros where the beginning of the file has not come to the disk."""
    path = tmp_path / "s"
    for make in (FilePublishStore, FileBookmarkStore):
        path.unlink(missing_ok=True)
        make(path).close()
        whole = path.read_bytes()
        path.write_bytes(whole[:begun] + bytes(zeros))
        make(path).close()
        assert path.read_bytes() == whole


def test_a_file_with_zeros_before_its_records_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "log"
    damaged = bytes(8) + written(path, [b"one"])[8:]
    path.write_bytes(damaged)
    with pytest.raises(StoreError, match="no file of this kind"):
        read(path)
    assert path.read_bytes() == damaged


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_a_flipped_bit_is_never_read_as_a_record(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("log") / "log"
    records = [b"one", b"two" * 20, b"three"]
    whole = bytearray(written(path, records))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(whole)
    try:
        left = read(path)
    except StoreError:
        assert path.read_bytes() == whole, "what is damaged is left as it is"
    else:
        assert left == records[:2], "only the last record can be taken for unfinished"


def test_a_file_is_had_by_one_store_at_a_time(tmp_path: Path) -> None:
    store = FilePublishStore(tmp_path / "s")
    with pytest.raises(StoreError, match="in use by another store"):
        FilePublishStore(tmp_path / "s")
    store.close()
    FilePublishStore(tmp_path / "s").close()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: path.write_bytes(b"something else entirely"), "no file of this kind"),
        (lambda path: path.mkdir(), "Is a directory"),
    ],
)
def test_what_is_no_store_is_left_alone(
    tmp_path: Path, make: Callable[[Path], object], said: str
) -> None:
    path = tmp_path / "s"
    make(path)
    with pytest.raises(StoreError, match=said):
        FilePublishStore(path)
    with pytest.raises(StoreError, match=said):
        FileBookmarkStore(path)


@pytest.mark.parametrize(
    ("make", "begins", "known"),
    [(FilePublishStore, b"AMPRPUB", 1), (FileBookmarkStore, b"AMPRBMK", 2)],
)
def test_a_store_of_a_later_version_is_left_alone(
    tmp_path: Path, make: Callable[[Path], object], begins: bytes, known: int
) -> None:
    path = tmp_path / "s"
    content = b"%b%d what later versions write" % (begins, known + 1)
    path.write_bytes(content)
    said = f"has version {known + 1} of its format, and this program reads {known}: a later"
    with pytest.raises(StoreError, match=said):
        make(path)
    assert path.read_bytes() == content


def test_a_file_stays_small_however_much_goes_through_it(tmp_path: Path) -> None:
    path = tmp_path / "s"
    store = FilePublishStore(path)
    for number in range(1, 4001):
        store.add(HEAD, b"x" * 1000)
        store.commit()
        store.persisted(number - 1)
    assert path.stat().st_size < 2_000_000
    store.close()
    store = FilePublishStore(path)
    assert [message.sequence for message in store] == [4000]
    assert store.last_sequence == 4000
    store.close()


def test_what_cannot_be_written_is_not_taken(tmp_path: Path) -> None:
    store = FilePublishStore(tmp_path / "s")
    store.add(HEAD, b"1")
    store.commit()
    store.close()
    store.add(HEAD, b"2")
    with pytest.raises(StoreError, match="closed"):
        store.commit()
    assert ([message.body for message in store], store.last_sequence) == ([b"1"], 1)


def test_bookmarks_are_there_again(tmp_path: Path) -> None:
    path = tmp_path / "b"
    store = FileBookmarkStore(path)
    trail = store.trail("s", MOST_RECENT)
    assert trail.resume_from == "0"
    store.keep("s", trail)
    assert trail.on_done is not None
    for bookmark in ("7|1|", "8|1|", "7|2|"):
        assert trail.is_new(bookmark)
        trail.on_done(bookmark)
    trail.is_new("8|2|")  # has arrived, and is not done
    store.close()
    store = FileBookmarkStore(path)
    again = store.trail("s", MOST_RECENT)
    assert points(again) == {"8|1|", "7|2|"}
    assert (store.most_recent("s"), store.most_recent("t")) == (again.resume_from, "0")
    assert [again.is_new(bookmark) for bookmark in ("8|1|", "7|2|", "8|2|")] == [False, False, True]
    store.keep("s", store.trail("s", "0"))
    assert store.most_recent("s") == "0", "it began anew"
    store.close()


def followed(path: Path, start: str = MOST_RECENT) -> tuple[FileBookmarkStore, BookmarkTrail]:
    """A store, and the trail of a subscription that is placed again."""
    store = FileBookmarkStore(path)
    trail = store.trail("s", start)
    store.keep("s", trail)
    return store, trail


def work_off(trail: BookmarkTrail, *bookmarks: str) -> None:
    """Have messages come, and deal with them."""
    assert trail.on_done is not None
    for bookmark in bookmarks:
        assert trail.is_new(bookmark)
        trail.on_done(bookmark)


def points(trail: BookmarkTrail) -> set[str]:
    return set(trail.resume_from.split(","))


def test_where_a_subscription_can_go_on_counts_when_what_came_before_is_done(
    tmp_path: Path,
) -> None:
    store, trail = followed(tmp_path / "b", NOW)
    trail.persisted(None, ["100|1|", "200|1|"])
    store.close()
    store, trail = followed(tmp_path / "b")
    assert points(trail) == {"100|1|", "200|1|"}, "now was then"
    for number in range(1, 41):
        assert trail.is_new(f"7|{number}|")
        trail.persisted(f"7|{number}|", [f"100|{number + 1}|", f"200|{number + 1}|"])
    store.close()
    store, trail = followed(tmp_path / "b")
    assert points(trail) == {"100|1|", "200|1|"}, "nothing has been dealt with"
    for number in range(1, 41):
        assert trail.is_new(f"7|{number}|")
        trail.persisted(f"7|{number}|", [f"100|{number + 1}|", f"200|{number + 1}|"])
    assert trail.on_done is not None
    for number in range(1, 41):
        trail.on_done(f"7|{number}|")
        log, _, txid = store.most_recent("s").partition("|")
        assert (log, int(txid.partition("|")[0]) <= number + 1) == ("100", True)
    assert points(trail) == {"100|41|", "200|41|", "7|40|"}
    assert trail.resume_from == store.most_recent("s")
    store.close()
    store, trail = followed(tmp_path / "b")
    assert points(trail) == {"100|41|", "200|41|", "7|40|"}
    store.close()


def test_what_was_left_out_is_new_in_another_run_and_comes_once(tmp_path: Path) -> None:
    """Also when the file has been written anew in between."""
    path = tmp_path / "b"
    store, trail = followed(path)
    work_off(trail, "7|5|", "7|9|", "8|2|", "7|7|")
    for number in range(3, 40_000):
        work_off(trail, f"8|{number}|")
    assert path.stat().st_size < 1_200_000, "it has been written anew"
    for _ in range(2):  # what the first run reads, and what that one has written
        store.close()
        store, trail = followed(path)
    assert trail.resume_from.split(",")[-1] == "8|39999|"
    assert [number for number in range(1, 11) if trail.is_new(f"7|{number}|")] == [
        *(1, 2, 3, 4, 6),
        *(8, 10),
    ]
    assert not trail.is_new("8|2|")
    assert trail.is_new("8|1|")
    store.close()


def test_a_file_of_the_first_form_is_read(tmp_path: Path) -> None:
    """It has nothing but bookmarks; what is before the first of a publisher counts as had."""
    path = tmp_path / "b"
    log = RecordLog(path, b"AMPRBMK1")
    log.append(b"\x01\x00s" + bookmark for bookmark in (b"7|5|", b"8|1|", b"7|8|"))
    log.close()
    for _ in range(2):
        store, trail = followed(path)
        assert points(trail) == {"8|1|", "7|8|"}
        assert [number for number in range(4, 11) if trail.is_new(f"7|{number}|")] == [6, 7, 9, 10]
        store.close()
    assert path.read_bytes().startswith(b"AMPRBMK2")


CONSUMER = """
import sys
from amperage.client import FileBookmarkStore
from tests.support.chances import examples
store = FileBookmarkStore(sys.argv[1])
trail = store.trail("s", "recent")
store.keep("s", trail)
for number in map(int, sys.argv[2].split(",")):
    if trail.is_new(f"7|{number}|"):
        trail.on_done(f"7|{number}|")
        trail.persisted(f"7|{number}|", [f"100|{number}|"])
        print(number, flush=True)
print("end", flush=True)
sys.stdin.read()
"""


@pytest.mark.process
@settings(max_examples=examples(6, 3), deadline=None)
@given(
    numbers=st.lists(st.integers(1, 60), min_size=30, max_size=60, unique=True),
    kills=st.lists(st.integers(1, 12), min_size=1, max_size=3),
)
def test_what_a_consumer_has_done_before_it_is_killed_is_done(
    tmp_path_factory: pytest.TempPathFactory, numbers: list[int], kills: list[int]
) -> None:
    """Messages come in any order, and all of them again in each run: each is dealt with once."""
    path = tmp_path_factory.mktemp("kills") / "b"
    done: list[int] = []
    for kill in [*kills, None]:
        consumer = subprocess.Popen(
            [sys.executable, "-c", CONSUMER, str(path), ",".join(map(str, numbers))],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert consumer.stdin is not None
        assert consumer.stdout is not None
        said: list[bytes] = []
        while kill is not None and len(said) < kill and b"end\n" not in said:
            said.append(consumer.stdout.readline())
        if kill is not None:
            consumer.send_signal(signal.SIGKILL)
        consumer.stdin.close()
        said += consumer.stdout.readlines()
        consumer.wait()
        consumer.stdout.close()
        done += [int(line) for line in said if line.endswith(b"\n") and line != b"end\n"]
    # Of what was done at the moment of a kill, the last may not have been said.
    assert len(done) == len(set(done))
    assert len(numbers) - len(done) <= len(kills)


def test_a_store_in_a_file_wants_a_name_that_lasts(tmp_path: Path) -> None:
    store = FilePublishStore(tmp_path / "s")
    with pytest.raises(ValueError, match="needs a client with a name"):
        HAClient(["tcp://localhost:1/amps"], publish_store=store)
    store.close()


PUBLISHER = """
import sys
from amperage.client import FilePublishStore, HAClient
client = HAClient([sys.argv[1]], "mine", publish_store=FilePublishStore(sys.argv[2]))
client.connect()
n = 0
while True:
    n += 1
    client.publish("t", b"%d" % n)
    print(n, flush=True)
"""


@pytest.mark.parametrize("new", HA_SHELLS.values(), ids=HA_SHELLS)
def test_resuming_from_a_file_wants_an_id_that_lasts(new: NewHAClient, tmp_path: Path) -> None:
    async def scenario() -> None:
        with FileBookmarkStore(tmp_path / "s") as store, scripted_peer() as peer:
            uri = f"tcp://127.0.0.1:{peer.port}/amps"
            async with new([uri], bookmark_store=store) as client:
                await client.connect()
                with pytest.raises(ValueError, match=r"recent.* needs a sub_id"):
                    await client.subscribe("t", bookmark="recent")
                await client.subscribe("t", bookmark="0")

    asyncio.run(scenario())


def test_a_publisher_that_is_killed_loses_nothing_that_it_has_published(tmp_path: Path) -> None:
    """The server acknowledges nothing; a second run sends what the first has published."""
    path = tmp_path / "s"

    def silent(header: dict[str, str], _body: bytes) -> list[bytes]:
        return [] if header["c"] == "p" else accept(header)

    with scripted_peer(silent) as peer:
        where = f"tcp://127.0.0.1:{peer.port}/amps/json"
        publisher = subprocess.Popen(
            [sys.executable, "-c", PUBLISHER, where, str(path)], cwd=ROOT, stdout=subprocess.PIPE
        )
        assert publisher.stdout is not None
        said = [publisher.stdout.readline() for _ in range(300)]
        publisher.send_signal(signal.SIGKILL)
        said += publisher.stdout.readlines()
        publisher.wait()
        publisher.stdout.close()
    published = [int(line) for line in said if line.endswith(b"\n")]
    with scripted_peer() as peer:
        where = f"tcp://127.0.0.1:{peer.port}/amps/json"
        store = FilePublishStore(path)
        with HAClient([where], "mine", publish_store=store) as client:
            client.connect()
            client.publish_flush(10)
        assert len(store) == 0
        store.close()
        numbers = [(header["s"], int(body)) for header, body in peer.received if header["c"] == "p"]
    assert numbers == [(number, number) for number in range(1, len(numbers) + 1)]
    assert len(numbers) >= published[-1] >= 300
