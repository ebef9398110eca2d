"""Checks whether an instance is the one that had its name before.

An instance is known by its Name, and distinguished from others by the identity of its transaction
log, which is made with the log. An instance that connects under a known name with another log has a
new disk, restored data, or the name of another instance. No position in the former log is valid in
this one; that needs no code, since positions include the identity of their log. This module reports
the change, at both ends, because the operators have to know which of these cases it is.

Two runs with the same log cannot be distinguished by it: the data have been copied. They are
distinguished by the numbers of their runs. If a run connects again after another one has been
connected, it is still running, so there are two; it is refused.

Bytes of a run may arrive from a buffer long after the run has ended, when the next one has already
been connected. So receiving bytes from a run proves nothing. Only a response does: the run was
alive when the request was sent. If the run that was connected last connected only after that, it is
unknown which of the two is the later one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from server.util.peer_struct import MSGPACK_ERRORS, PeerStruct

if TYPE_CHECKING:
    from server.replication.core import Hello
    from server.util.log_protocol import ServerLog

SUBJECT: Final = "identity"
"""Subject of the messages of this module."""

_MAX_NAMES: Final = 1_000
_MAX_RUNS: Final = 16  # stored for each name
_MAX_SHOWN: Final = 80  # characters of an identity received from another instance


class IdentityNotice(PeerStruct, frozen=True):
    """A notice to an instance that another log had its name here.

    Attributes:
        before: the identity of that log.
    """

    before: str


@dataclass(slots=True)
class _PeerRun:
    """A run of an instance.

    Attributes:
        nonce: its number.
        first_answer_s: time of its first response, in seconds.
        is_refused: whether it has responded since another one did, and so is not admitted any more.
    """

    nonce: int
    first_answer_s: float
    is_refused: bool = False


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(IdentityNotice)


class PeerIdentities:
    """The identities of the instances that have connected, by name.

    Args:
        instance: name of this one.
        log_id: identity of its log.
        known_logs: by name, the identities of the logs that others had in earlier runs.
        event_log: the event log.
    """

    def __init__(
        self, instance: str, log_id: str, known_logs: Mapping[str, str], event_log: ServerLog
    ) -> None:
        self._instance: Final = instance
        self._log_id: Final = log_id
        self._log_ids: Final = dict(known_logs)
        self._event_log: Final = event_log
        self._runs: Final[dict[str, deque[_PeerRun]]] = {}  # by name; the last one is connected

    def known_logs(self) -> dict[str, str]:
        """Return the identities of the known logs, by name."""
        return dict(self._log_ids)

    def is_another_run(self, peer: Hello) -> bool:
        """Return whether another run was connected last; then this one must respond first."""
        runs = self._runs.get(peer.instance)
        return runs is not None and runs[-1].nonce != peer.nonce

    def may_have_ended(self, peer: Hello, requested_at: float) -> bool:
        """Return whether a run that has responded may have ended before the latest run began.

        Args:
            peer: its `Hello`.
            requested_at: time of sending the frame to which it has responded, in seconds.
        """
        return (
            self.is_another_run(peer)
            and self._runs[peer.instance][-1].first_answer_s >= requested_at
        )

    def refusal(self, peer: Hello, *, has_answered: bool) -> str | None:
        """Return the reason to refuse a run while another one with the same log runs; else None.

        Args:
            peer: its `Hello`.
            has_answered: whether it is certain to be alive; a run that was refused once is.
        """
        if not self.is_another_run(peer):
            return None
        runs = self._runs[peer.instance]
        run = next((known_run for known_run in runs if known_run.nonce == peer.nonce), None)
        if run is None:
            return None
        run.is_refused |= has_answered
        if not run.is_refused:
            return None
        return (
            f"another {peer.instance} has connected to {self._instance} with the same "
            "transaction log, and both run: the data of one are a copy; stop one of them, and give "
            "it a Name of its own and an empty directory for its journals"
        )

    def record_peer(self, peer: Hello, now: float) -> str | None:
        """Record an instance with which this instance has a link.

        Args:
            peer: its `Hello`.
            now: the time, in seconds.

        Returns:
            The identity of the log that the instance of this name had before; None if it is this
            one, or none is known.
        """
        name = peer.instance
        runs = self._runs.setdefault(name, deque(maxlen=_MAX_RUNS))
        previous_log_id = self._log_ids.pop(name, None)
        if previous_log_id != peer.log:
            runs.clear()
        if not runs or runs[-1].nonce != peer.nonce:
            runs.append(_PeerRun(peer.nonce, now))
        self._log_ids[name] = peer.log
        while len(self._log_ids) > _MAX_NAMES:
            oldest = next(iter(self._log_ids))
            del self._log_ids[oldest]
            self._runs.pop(oldest, None)
        return previous_log_id if previous_log_id != peer.log else None

    def report_changed_log(
        self, address: str, before: str, now: str, send: Callable[[bytes], None], *, is_empty: bool
    ) -> None:
        """Report, here and to the instance, that its name had another log before.

        Args:
            address: its name and address.
            before: the identity of the log that the instance of this name had.
            now: the identity of its log.
            send: sends a message to the instance.
            is_empty: whether its log is empty.
        """
        self._event_log.emit(
            "1E-0030" if is_empty else "1E-0031",
            instance=self._instance,
            other=address,
            before=before,
            now=now,
        )
        send(_ENCODER.encode(IdentityNotice(before)))

    def receive_notice(self, peer: str, body: bytes) -> None:
        """Log the report of another instance that our name had another log there before."""
        try:
            notice = _DECODER.decode(body)
        except MSGPACK_ERRORS:
            return
        self._event_log.emit(
            "1E-0032",
            instance=self._instance,
            other=peer,
            before=notice.before[:_MAX_SHOWN],
            now=self._log_id,
        )
