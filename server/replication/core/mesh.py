"""Reports that instances exchange, so that each knows all others, also those behind others.

Theory of operation. Each instance makes a *report* of itself periodically: the address of its admin
interface, the instances that it has links with, and the state of its destinations. No clocks are
compared: the reports of an instance are numbered, and a report travels with its age, which each
instance that holds it measures. An instance that is restarted begins with 1; as soon as a neighbour
sends the number of a report of an earlier run, the instance continues behind that number.

Neighbours send each other the numbers of the reports that they have, and request those that are
newer than theirs.

    _ReportOffer      name, run and number of each report
    _ReportRequest    names of the reports to be sent
    _ReportTransfer   age and report, of each

So each instance receives a report about once, whether the instances form a chain, a ring, or a full
mesh; a lost report is requested again. The more instances there are, the less often each makes a
report: there are `_REPORTS_PER_SECOND` new ones a second in all.

An instance is reachable if a chain of links leads to it, each of which is reported by the instance
at its nearer end; other reports of it do not count. So an instance that is down, or behind one that
is, shows as unreachable without a timeout for its reports. The last report of it is kept for a day.

For integrators: call `replace_own_report` when `is_report_due`, then send `make_offers` to all
neighbours; pass messages of a neighbour to `receive_message`, and send back the messages that it
returns. About once a second, call `remove_expired`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta, Raw, Struct
from msgspec.structs import replace

from server.util.clock import MICROSECONDS_PER_SECOND
from server.util.peer_struct import MSGPACK_ERRORS

MAX_INSTANCES: Final = 256
"""Instances of which reports are kept."""
MAX_LINKS: Final = 256
"""Destinations, and neighbours, of one report."""
MAX_REPORT_TEXT_LENGTH: Final = 255
"""Characters of a text in a report."""
REPORT_LIFETIME_US: Final = 86_400_000_000
"""Microseconds for which a report is kept if no other one replaces it."""

_REPORTS_PER_SECOND: Final = 10
"""New reports a second in the whole mesh."""
_MILLISECOND: Final = 1_000
_REQUEST_INTERVAL_US: Final = 3 * MICROSECONDS_PER_SECOND
_MAX_REPORT_BYTES: Final = 32_768
_MAX_MESSAGE_BYTES: Final = 48_000
_MAX_REQUESTS: Final = 4 * MAX_INSTANCES
_MAX_NUMBER: Final = 1 << 53
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
        state: its state, in a few words.
        since: when it was connected, or disconnected, by the clock of the reporting instance, in
            microseconds since 1970; 0 if neither has happened.
        messages_behind: entries of the log that it has not stored.
        bytes_behind: about how many bytes these are.
        seconds_behind: for how long the first unacknowledged entry has waited.
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
    """An instance with which the reporting instance has a link, or had one.

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
        run: the number of this run of the instance.
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
        data: the report as received, to be forwarded unchanged.
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


_MESSAGE_DECODER: Final = msgspec.msgpack.Decoder(_ReportOffer | _ReportRequest | _ReportTransfer)
_REPORT_DECODER: Final = msgspec.msgpack.Decoder(MeshReport)
_ENCODER: Final = msgspec.msgpack.Encoder()


class Mesh:
    """The reports of all instances, as one instance knows them.

    Args:
        instance: its name.
        run: the number of this run of the instance.

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

    # the report of this instance

    def is_report_due(self, now: int) -> bool:
        """Return whether it is time for another report.

        Args:
            now: microseconds, monotonic.
        """
        if self.own_report is None or self.own_report.report.number < self._number:
            return True
        pause = max(
            MICROSECONDS_PER_SECOND,
            len(self.peer_reports) * MICROSECONDS_PER_SECOND // _REPORTS_PER_SECOND,
        )
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
        while len(data) > _MAX_REPORT_BYTES:
            fewer = max(len(report.neighbours), len(report.links)) // 2
            report = replace(
                report, neighbours=report.neighbours[:fewer], links=report.links[:fewer]
            )
            data = _ENCODER.encode(report)
        self.own_report = ReceivedReport(report, data, now)

    def make_offers(self) -> list[bytes]:
        """Return the messages that offer all reports to a neighbour."""
        reports = [received.report for received in self.peer_reports.values()]
        if self.own_report is not None:
            reports.append(self.own_report.report)
        return _pack_messages(
            1, [(received.name, received.run, received.number) for received in reports]
        )

    # the reports of other instances

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
            neighbours: the names of all instances with which there are links.

        Returns:
            The messages to send back.
        """
        try:
            message = _MESSAGE_DECODER.decode(body)
        except MSGPACK_ERRORS:
            return []
        match message:
            case _ReportOffer():
                first_hand = (
                    offer
                    for offer in message.reports
                    if offer[0] == peer or offer[0] not in neighbours
                )
                return _pack_messages(2, self._select_newer(first_hand, now))
            case _ReportRequest():
                return _pack_messages(3, self._requested_reports(peer, message.names, now))
            case _ReportTransfer():
                for age, data in message.reports:
                    report = self._decode_report(bytes(data), now - age * _MILLISECOND, now)
                    if report is not None and (
                        report.name == peer or report.name not in neighbours
                    ):
                        self._store_report(report, bytes(data), now - age * _MILLISECOND)
        return []

    def _select_newer(self, reports: Iterable[tuple[str, int, int]], now: int) -> list[str]:
        """Return the names of reports that are newer than those here."""
        names: list[str] = []
        for name, run, number in reports:
            if name == self._instance:
                self._raise_number(run, number)
            elif self._is_newer(name, number) and self._may_request(name, now):
                if len(self._request_times_us) >= _MAX_REQUESTS:
                    self._request_times_us.clear()
                self._request_times_us[name] = now
                names.append(name)
        return names

    def _raise_number(self, run: int, number: int) -> None:
        """Give the next report a greater number than a report of an earlier run has."""
        is_other = number > self._number or (number == self._number and run != self._run)
        if is_other and number < _MAX_NUMBER:
            self._number = number

    def _is_newer(self, name: str, number: int) -> bool:
        current = self.peer_reports.get(name)
        return number <= _MAX_NUMBER and (current is None or number > current.report.number)

    def _may_request(self, name: str, now: int) -> bool:
        requested_at = self._request_times_us.get(name)
        return requested_at is None or now - requested_at >= _REQUEST_INTERVAL_US

    def _requested_reports(
        self, peer: str, names: Iterable[str], now: int
    ) -> list[tuple[int, Raw]]:
        """Return the reports that a neighbour requests; each once per report of this instance."""
        reports: list[tuple[int, Raw]] = []
        for name in names:
            received = self.own_report if name == self._instance else self.peer_reports.get(name)
            if received is not None and (peer, name) not in self._sent_reports:
                self._sent_reports.add((peer, name))
                age = max(now - received.made_at_us, 0) // _MILLISECOND
                reports.append((age, Raw(received.data)))
        return reports

    @staticmethod
    def _decode_report(data: bytes, made_at: int, now: int) -> MeshReport | None:
        """Return the decoded report; None if it is too old, too long or malformed."""
        if len(data) > _MAX_REPORT_BYTES or now - made_at >= REPORT_LIFETIME_US:
            return None
        try:
            return _REPORT_DECODER.decode(data)
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
        """Remove the instance that has been unreachable for longest; return whether one was."""
        reachable = self.reachable_instances()
        unreachable = [
            received
            for received in self.peer_reports.values()
            if received.report.name not in reachable
        ]
        if not unreachable:
            return False
        del self.peer_reports[
            min(unreachable, key=lambda received: received.made_at_us).report.name
        ]
        return True

    def remove_expired(self, now: int) -> None:
        """Remove expired reports."""
        for name in [
            name
            for name, received in self.peer_reports.items()
            if now - received.made_at_us >= REPORT_LIFETIME_US
        ]:
            del self.peer_reports[name]

    # the resulting mesh

    def neighbours_by_name(self) -> Mapping[str, Sequence[Neighbour]]:
        """Return, by name, the entries that the neighbours of an instance have of it.

        The entries of this instance come first, and those with a link before those without.
        """
        reports = [] if self.own_report is None else [self.own_report]
        reports += [received for _, received in sorted(self.peer_reports.items())]
        neighbours: dict[str, list[Neighbour]] = {}
        for is_connected in (True, False):
            for received in reports:
                for neighbour in received.report.neighbours:
                    if neighbour.is_connected is is_connected:
                        neighbours.setdefault(neighbour.name, []).append(neighbour)
        return neighbours

    def reachable_instances(self) -> set[str]:
        """Return the names of all instances that are reachable over links, including this one."""
        reachable = {self._instance}
        pending = [self._instance]
        for name in pending:
            received = self.own_report if name == self._instance else self.peer_reports.get(name)
            for neighbour in () if received is None else received.report.neighbours:
                if neighbour.is_connected and neighbour.name not in reachable:
                    reachable.add(neighbour.name)
                    pending.append(neighbour.name)
        return reachable


def _pack_messages(kind: int, items: Iterable[object]) -> list[bytes]:
    """Return messages with all items, none of them too long."""
    messages: list[bytes] = []
    batch: list[Raw] = []
    size = 0
    for item in items:
        data = _ENCODER.encode(item)
        if batch and size + len(data) > _MAX_MESSAGE_BYTES:
            messages.append(_ENCODER.encode((kind, batch)))
            batch, size = [], 0
        batch.append(Raw(data))
        size += len(data)
    if batch:
        messages.append(_ENCODER.encode((kind, batch)))
    return messages
