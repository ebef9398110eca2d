"""Reports that instances exchange, so that each knows all others, also those behind others.

Theory of operation. Each instance makes a *report* of itself periodically: the address of its admin
interface, the instances that it has links with, and the state of its destinations. No clocks are
compared: the reports of an instance are numbered, and a report travels with its age, which each
instance that holds it measures. An instance that is restarted begins with 1; as soon as a neighbour
sends the number of a report of an earlier run, the instance continues behind that number.

Neighbours send each other the numbers of the reports that they have, and ask for those that are
newer than theirs.

    Have   name, run and number of each report
    Want   names of the reports to be sent
    Told   age and report, of each

So each instance receives a report about once, whether the instances form a chain, a ring, or a full
mesh; a lost report is asked for again. The more instances there are, the less often each makes a
report: there are `_RATE` new ones a second in all.

An instance is reachable if a chain of links leads to it, each of which is reported by the instance
at its nearer end; other reports of it do not count. So an instance that is down, or behind one that
is, shows as unreachable without a timeout for its reports. The last report of it is kept for a day.

For integrators: call `renew` when `is_due`, then send `have` to all neighbours; pass messages of a
neighbour to `receive`, and send back the messages that it returns. About once a second, call
`forget`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta, Raw, Struct
from msgspec.structs import replace

from server.util.msgpack_errors import MSGPACK_ERRORS

MAX_INSTANCES: Final = 256
"""Instances of which reports are kept."""
MAX_LINKS: Final = 256
"""Destinations, and neighbours, of one report."""
MAX_REPORT_TEXT_LENGTH: Final = 255
"""Characters of a text in a report."""
REPORT_LIFETIME_US: Final = 86_400_000_000
"""Microseconds for which a report is kept that no other one replaces."""

_RATE: Final = 10
"""New reports a second in the whole mesh."""
_SECOND: Final = 1_000_000
_MILLISECOND: Final = 1_000
_ASK_AGAIN: Final = 3 * _SECOND
_MAX_IN_REPORT: Final = 32_768
_MAX_IN_WORD: Final = 48_000
_MAX_ASKED: Final = 4 * MAX_INSTANCES
_HIGHEST: Final = 1 << 53
"""Highest accepted number of a report: out of reach of any instance, with room above it."""

ReportText: TypeAlias = Annotated[str, Meta(max_length=MAX_REPORT_TEXT_LENGTH)]
ReportCount: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 62))]
ReportTimestamp: TypeAlias = Annotated[int, Meta(ge=0, le=253_402_300_799_000_000)]
"""Microseconds since 1970, before the year 10,000."""


class LinkReport(Struct, frozen=True, array_like=True):
    """The state of one of an instance's destinations, as the instance sees it.

    Attributes:
        destination: the name of the Destination.
        peer: the instance that is connected, or was last; empty if none was.
        group: its group, or that of the destination.
        sync_type: as it is configured: sync or async.
        is_waited_for: whether publishers wait for it.
        state: in a word or two.
        since: when it was connected, or disconnected, by the clock of the reporting instance, in
            microseconds since 1970; 0 if neither has happened.
        messages_behind: entries of the log that it has not stored.
        bytes_behind: about how many bytes these are.
        seconds_behind: for how long the first entry has waited that it has not acknowledged.
        messages_out: entries that have been sent there.
        waits_for: the cause that blocks its progress; empty if there is none.
    """

    destination: ReportText
    peer: ReportText
    group: ReportText
    sync_type: ReportText
    is_waited_for: bool
    state: ReportText
    since: ReportTimestamp
    messages_behind: ReportCount
    bytes_behind: ReportCount
    seconds_behind: ReportCount
    messages_out: ReportCount
    waits_for: ReportText


class Neighbour(Struct, frozen=True, array_like=True):
    """An instance that there is a link with, or was.

    Attributes:
        name: its name.
        group: its group.
        admin: the address of its admin interface, as seen from here; empty if that is not known.
        is_secure: whether that is reached over TLS.
        is_connected: whether there is a link.
    """

    name: ReportText
    group: ReportText
    admin: ReportText
    is_secure: bool
    is_connected: bool


class MeshReport(Struct, frozen=True, array_like=True):
    """The report of an instance on itself.

    Attributes:
        name: its name.
        run: a number of this run of it.
        number: a later report has a greater one.
        group: its group.
        admin: the address of its admin interface, if it knows that itself; or empty.
        is_secure: whether that is reached over TLS.
        neighbours: the instances that it has links with, or has had.
        links: its destinations.
    """

    name: Annotated[str, Meta(min_length=1, max_length=MAX_REPORT_TEXT_LENGTH)]
    run: ReportCount
    number: ReportCount
    group: ReportText
    admin: ReportText
    is_secure: bool
    neighbours: Annotated[list[Neighbour], Meta(max_length=MAX_LINKS)]
    links: Annotated[list[LinkReport], Meta(max_length=MAX_LINKS)]


class ReceivedReport(Struct, frozen=True):
    """A report, and the time when it was made.

    Attributes:
        report: the decoded report.
        data: the report as received; it is forwarded like that.
        made_at_us: when it was made, in microseconds of the clock here.
    """

    report: MeshReport
    data: bytes
    made_at_us: int


class _ReportOffer(Struct, frozen=True, array_like=True, tag=1):
    reports: list[tuple[ReportText, ReportCount, ReportCount]]


class _ReportRequest(Struct, frozen=True, array_like=True, tag=2):
    names: list[ReportText]


class _ReportTransfer(Struct, frozen=True, array_like=True, tag=3):
    reports: list[tuple[ReportCount, Raw]]


_WORD: Final = msgspec.msgpack.Decoder(_ReportOffer | _ReportRequest | _ReportTransfer)
_REPORT: Final = msgspec.msgpack.Decoder(MeshReport)
_ENCODER: Final = msgspec.msgpack.Encoder()


class Mesh:
    """The reports of all instances, as one instance knows them.

    Args:
        instance: its name.
        run: a number of this run of it.

    Attributes:
        own_report: its own last report; None before the first one.
        peer_reports: the last report of each other instance, by name.
    """

    def __init__(self, instance: str, run: int) -> None:
        self.own_report: ReceivedReport | None = None
        self.peer_reports: dict[str, ReceivedReport] = {}
        self._instance: Final = instance
        self._run: Final = run
        self._number = 0
        self._request_times_us: dict[str, int] = {}
        self._sent_reports: set[tuple[str, str]] = set()  # since the last report

    # The report of this instance.

    def is_report_due(self, now: int) -> bool:
        """Return whether it is time for another report.

        Args:
            now: microseconds since some moment, never going back.
        """
        if self.own_report is None or self.own_report.report.number < self._number:
            return True
        pause = max(_SECOND, len(self.peer_reports) * _SECOND // _RATE)
        return now - self.own_report.made_at_us >= pause

    def replace_own_report(self, report: MeshReport, now: int) -> None:
        """Replace the report of this instance.

        Args:
            report: the new report; its run and number are set here, and lists that are too long are
                cut.
            now: microseconds.
        """
        self._number += 1
        self._sent_reports.clear()
        report = replace(
            report,
            run=self._run,
            number=self._number,
            neighbours=report.neighbours[:MAX_LINKS],
            links=report.links[:MAX_LINKS],
        )
        data = _ENCODER.encode(report)
        while len(data) > _MAX_IN_REPORT:
            fewer = max(len(report.neighbours), len(report.links)) // 2
            report = replace(
                report, neighbours=report.neighbours[:fewer], links=report.links[:fewer]
            )
            data = _ENCODER.encode(report)
        self.own_report = ReceivedReport(report, data, now)

    def make_offers(self) -> list[bytes]:
        """Return the messages that tell a neighbour which reports are here."""
        reports = [one.report for one in self.peer_reports.values()]
        if self.own_report is not None:
            reports.append(self.own_report.report)
        return _words(1, [(one.name, one.run, one.number) for one in reports])

    # The reports of others.

    def receive_message(
        self, peer: str, body: bytes, now: int, neighbours: Container[str] = ()
    ) -> list[bytes]:
        """Process a message of a neighbour; ignore a malformed one.

        Neighbours report on themselves: a report on a neighbour is not accepted from another
        instance.

        Args:
            peer: its name.
            body: the message.
            now: microseconds.
            neighbours: the names of all instances that there are links with.

        Returns:
            The messages to send back.
        """
        try:
            word = _WORD.decode(body)
        except MSGPACK_ERRORS:
            return []
        match word:
            case _ReportOffer():
                first_hand = (
                    one for one in word.reports if one[0] == peer or one[0] not in neighbours
                )
                return _words(2, self._select_newer(first_hand, now))
            case _ReportRequest():
                return _words(3, self._requested_reports(peer, word.names, now))
            case _ReportTransfer():
                for age, data in word.reports:
                    report = self._decode_report(bytes(data), now - age * _MILLISECOND, now)
                    if report is not None and (
                        report.name == peer or report.name not in neighbours
                    ):
                        self._store_report(report, bytes(data), now - age * _MILLISECOND)
        return []

    def _select_newer(self, reports: Iterable[tuple[str, int, int]], now: int) -> list[str]:
        """Return the names of reports that are newer than those here."""
        wanted: list[str] = []
        for name, run, number in reports:
            if name == self._instance:
                self._raise_number(run, number)
            elif self._is_newer(name, number) and self._may_request(name, now):
                if len(self._request_times_us) >= _MAX_ASKED:
                    self._request_times_us.clear()
                self._request_times_us[name] = now
                wanted.append(name)
        return wanted

    def _raise_number(self, run: int, number: int) -> None:
        """Give the next report a greater number than a report of an earlier run has."""
        is_other = number > self._number or (number == self._number and run != self._run)
        if is_other and number < _HIGHEST:
            self._number = number

    def _is_newer(self, name: str, number: int) -> bool:
        known = self.peer_reports.get(name)
        return number <= _HIGHEST and (known is None or number > known.report.number)

    def _may_request(self, name: str, now: int) -> bool:
        asked = self._request_times_us.get(name)
        return asked is None or now - asked >= _ASK_AGAIN

    def _requested_reports(
        self, peer: str, names: Iterable[str], now: int
    ) -> list[tuple[int, Raw]]:
        """Return the reports that a neighbour asks for; each once per report of this instance."""
        found: list[tuple[int, Raw]] = []
        for name in names:
            known = self.own_report if name == self._instance else self.peer_reports.get(name)
            if known is not None and (peer, name) not in self._sent_reports:
                self._sent_reports.add((peer, name))
                age = max(now - known.made_at_us, 0) // _MILLISECOND
                found.append((age, Raw(known.data)))
        return found

    @staticmethod
    def _decode_report(data: bytes, made_at: int, now: int) -> MeshReport | None:
        """Return the decoded report; None if it is too old, too long or malformed."""
        if len(data) > _MAX_IN_REPORT or now - made_at >= REPORT_LIFETIME_US:
            return None
        try:
            return _REPORT.decode(data)
        except MSGPACK_ERRORS:
            return None

    def _store_report(self, report: MeshReport, data: bytes, made_at: int) -> None:
        """Store a report, if it is newer and there is room."""
        name = report.name
        if name == self._instance or not self._is_newer(name, report.number):
            return
        if (
            name not in self.peer_reports
            and len(self.peer_reports) >= MAX_INSTANCES
            and not self._evict_unreachable()
        ):
            return
        self.peer_reports[name] = ReceivedReport(report, data, made_at)
        self._request_times_us.pop(name, None)

    def _evict_unreachable(self) -> bool:
        """Forget the instance that has been unreachable for longest; return whether one was."""
        reachable = self.reachable_instances()
        gone = [one for one in self.peer_reports.values() if one.report.name not in reachable]
        if not gone:
            return False
        del self.peer_reports[min(gone, key=lambda one: one.made_at_us).report.name]
        return True

    def remove_expired(self, now: int) -> None:
        """Forget expired reports."""
        for name in [
            name
            for name, one in self.peer_reports.items()
            if now - one.made_at_us >= REPORT_LIFETIME_US
        ]:
            del self.peer_reports[name]

    # The mesh that results.

    def neighbours_by_name(self) -> Mapping[str, Sequence[Neighbour]]:
        """Return, by name, the entries that the neighbours of an instance have of it.

        The entries of this instance come first, and those with a link before those without.
        """
        known = [] if self.own_report is None else [self.own_report]
        known += [one for _, one in sorted(self.peer_reports.items())]
        found: dict[str, list[Neighbour]] = {}
        for is_connected in (True, False):
            for one in known:
                for neighbour in one.report.neighbours:
                    if neighbour.is_connected is is_connected:
                        found.setdefault(neighbour.name, []).append(neighbour)
        return found

    def reachable_instances(self) -> set[str]:
        """Return the names of all instances that links lead to, including this one."""
        found = {self._instance}
        waiting = [self._instance]
        for name in waiting:
            known = self.own_report if name == self._instance else self.peer_reports.get(name)
            for neighbour in () if known is None else known.report.neighbours:
                if neighbour.is_connected and neighbour.name not in found:
                    found.add(neighbour.name)
                    waiting.append(neighbour.name)
        return found


def _words(kind: int, items: Iterable[object]) -> list[bytes]:
    """Return messages with all items, none of them too long."""
    words: list[bytes] = []
    together: list[Raw] = []
    size = 0
    for item in items:
        data = _ENCODER.encode(item)
        if together and size + len(data) > _MAX_IN_WORD:
            words.append(_ENCODER.encode((kind, together)))
            together, size = [], 0
        together.append(Raw(data))
        size += len(data)
    if together:
        words.append(_ENCODER.encode((kind, together)))
    return words
