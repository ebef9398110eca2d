"""Old journal files are archived, compressed and removed, whoever asks for it.

Who asks only marks files; what has been marked is done one file after the other on a thread of its
own, while the log is in use. A file that is to be removed waits until nobody needs it any more:

- whoever reads the log says from where on (`TransactionLog.hold`);
- topics with records must have on stable storage what they would otherwise read from the log after
  a power failure;
- files before it go first, for the log must not have gaps.

Marks live as long as the process; whoever asks, asks again.
Source: AMPS User Guide, Manage Transaction Log Journal Files; Managing Journal Files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from server.journal import JournalError

if TYPE_CHECKING:
    from server.base.clock import Clock
    from server.base.log import Log
    from server.journal import Journal
    from server.journal.files import JournalFile
    from server.sow.store import StoreError
    from server.topics.stores import Stores
    from server.topics.transaction_log import TransactionLog

_Result = TypeVar("_Result")

_LOOK_AGAIN_SECONDS: Final = 1.0
"""Until it is looked again whether files to be removed are needed."""
_SETTLE_SECONDS: Final = 30.0
"""How long stable storage may take to take the records."""
_MICROSECONDS: Final = 1_000_000


class Deed(Enum):
    """What can be done to a journal file."""

    ARCHIVE = "archived"
    COMPRESS = "compressed"
    REMOVE = "removed"


class JournalKeeping:
    """Looks after the old journal files of one instance.

    Args:
        transaction_log: the transaction log.
        stores: the topics with records.
        clock: tells how old a file is.
        log: told what has been done, and what cannot be.
    """

    def __init__(
        self, transaction_log: TransactionLog, stores: Stores, clock: Clock, log: Log
    ) -> None:
        self._transaction_log = transaction_log
        self._journal: Journal = transaction_log.journal
        self._stores = stores
        self._clock = clock
        self._log = log
        self._thread = ThreadPoolExecutor(1, "journal-keeping")
        self._marks: dict[tuple[Deed, int], None] = {}  # in the order of marking
        self._said_waiting: set[int] = set()
        self._more = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def full(self) -> list[str]:
        """The names of the files that something can be done to, oldest first."""
        return [file.name for file in self._journal.files if file.seal is not None]

    async def mark(self, deed: Deed, age: float) -> None:
        """Have something done to files soon.

        Args:
            deed: what.
            age: seconds for which they have not been written to, at least.

        Raises:
            JournalError: there is nowhere to archive files to.
        """
        self._check(deed)
        latest = self._clock.now() - age
        for file, moment in await self._call(self._last_written):
            if moment <= latest:
                self._marks[deed, file.number] = None
            elif deed is Deed.REMOVE:  # the log must not have gaps
                break
        self._begin()

    async def mark_through(self, deed: Deed, name: str) -> None:
        """Have something done soon to a file, and to all older ones.

        Args:
            deed: what.
            name: of the file, as in `full`; nothing is done if there is none any more.

        Raises:
            JournalError: there is nowhere to archive files to.
        """
        self._check(deed)
        files = [file for file, _ in await self._call(self._last_written)]
        last = next((file.number for file in files if file.name == name), -1)
        for file in files:
            if file.number <= last:
                self._marks[deed, file.number] = None
        self._begin()

    def _check(self, deed: Deed) -> None:
        if deed is Deed.ARCHIVE and not self._journal.has_archive:
            raise JournalError(
                "there is nowhere to archive journals to: "
                "the configuration has no JournalArchiveDirectory"
            )

    def _begin(self) -> None:
        self._more.set()
        if self._task is None and self._marks:
            self._task = asyncio.get_running_loop().create_task(self._work())

    def _last_written(self) -> list[tuple[JournalFile, float]]:
        """Full files, and when each was written to last.

        That is for the thread that does what has been marked: there, no file is under way from one
        place to another.
        """
        full = [file for file in self._journal.files if file.seal is not None]
        return [(file, self._last_written_to(file)) for file in full]

    def _last_written_to(self, file: JournalFile) -> float:
        """Return when a file was written to last, as the wall clock is set now."""
        last = (file.end_txid or file.first_txid) - 1
        return _last_written(file) + self._journal.steps.correction(last) / _MICROSECONDS

    async def close(self) -> None:
        """Give up what is under way, and drop what is marked; the files stay as they are."""
        self._journal.give_up_filing()
        if self._task is not None:
            self._task.cancel()
        await asyncio.to_thread(self._thread.shutdown, wait=True, cancel_futures=True)

    async def _work(self) -> None:
        try:
            while self._marks:
                self._more.clear()
                if not (await self._remove_next() or await self._process_next()):
                    try:
                        async with asyncio.timeout(_LOOK_AGAIN_SECONDS):
                            await self._more.wait()
                    except TimeoutError:
                        continue
        finally:
            self._task = None

    async def _remove_next(self) -> bool:
        """Remove the oldest file, if that is marked and not needed."""
        file = self._journal.files[0]
        mark = Deed.REMOVE, file.number
        if mark not in self._marks or not self._journal.is_settled(file.number):
            return False
        if self._is_needed(file) or not await self._settle_records() or self._is_needed(file):
            return False
        for deed in Deed:
            self._marks.pop((deed, file.number), None)
        self._said_waiting.discard(file.number)
        with self._transaction_log.removing():
            await self._do(Deed.REMOVE, file, self._journal.remove)
        return True

    def _is_needed(self, file: JournalFile) -> bool:
        needed_from = self._transaction_log.needed_from
        if file.end_txid is not None and needed_from >= file.end_txid:
            return False
        if file.number not in self._said_waiting:
            self._said_waiting.add(file.number)
            self._log.emit("1D-0011", path=file.path, needed=needed_from)
        if file.end_txid is not None:
            self._transaction_log.stays(file.path, file.end_txid)
        return True

    async def _settle_records(self) -> bool:
        """Have all records put on stable storage, as far as the log has spoken of them.

        Returns:
            Whether that is done; where it cannot be, the store says why.
        """
        stores = self._stores
        settled: asyncio.Future[StoreError | None] = asyncio.get_running_loop().create_future()

        def settle(problem: StoreError | None) -> None:
            if not settled.done():
                settled.set_result(problem)

        topics = [sow for sow in stores.topics if stores.is_journaled(sow)]
        stores.when_stored(topics, settle)
        try:
            async with asyncio.timeout(_SETTLE_SECONDS):
                return await settled is None
        except TimeoutError:
            return False

    async def _process_next(self) -> bool:
        """Archive or compress the file that was marked first."""
        waiting = (mark for mark in self._marks if mark[0] is not Deed.REMOVE)
        mark = next((mark for mark in waiting if self._journal.is_settled(mark[1])), None)
        if mark is None:
            return False
        del self._marks[mark]
        deed, number = mark
        file = next((one for one in self._journal.files if one.number == number), None)
        if file is not None:
            archive = deed is Deed.ARCHIVE
            await self._do(deed, file, self._journal.archive if archive else self._journal.compress)
        return True

    async def _do(self, deed: Deed, file: JournalFile, do: Callable[[int], None]) -> None:
        """Do it to one file; where that fails, it would fail with others too."""
        try:
            await self._call(partial(do, file.number))
        except JournalError as error:
            others = [mark for mark in self._marks if mark[0] is deed]
            for mark in others:
                del self._marks[mark]
            self._log.emit("1D-0012", text=error, count=len(others), deed=deed.value)
            return
        now = next((one.path for one in self._journal.files if one.number == file.number), None)
        if now != file.path:
            self._log.emit("1D-0010", path=file.path, deed=deed.value, now=now)

    async def _call(self, function: Callable[[], _Result]) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)


def _last_written(file: JournalFile) -> float:
    """When a file was written to last, in seconds since the Unix epoch.

    That is when its last entry was made, or what its time of modification says if that is earlier:
    a file that was copied back has not been written to, and one whose time was set is as old as
    its owner says.
    """
    entry = (file.created if file.seal is None else file.seal.last_timestamp) / _MICROSECONDS
    try:
        return min(entry, file.path.stat().st_mtime)
    except OSError:
        return entry
