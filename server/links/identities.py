"""Which instance is behind a name: whether it is the one that was there before.

An instance is known by its Name, and told from others by the identity of its transaction log, which
is made with the log. Whoever comes under a known name with another log has a new disk, data that
have been put back, or somebody else's name. No place in the former log counts in this one; that is
so by itself, since places name the log that they are in. What is done here is to say it, at both
ends, for whoever runs the instances has to know which it is.

Two runs with one and the same log cannot be told apart by it: the data have been copied. They are
told apart by the numbers of their runs. A run that comes back after another one has been there is
still running, so there are two; it is refused.

What a run has said may arrive long after it has ended, out of a buffer, when the next one has been
there already. So nothing follows from a run's having said something, but only from its having
answered: it was there when it was asked. If the run that was there last has come only after that,
nobody knows which of the two is the later one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from server.base.malformed import MALFORMED

if TYPE_CHECKING:
    from server.base.log import Log
    from server.replication import Hello

SUBJECT: Final = "identity"
"""What words between instances are about that come from here."""

_MOST_NAMES: Final = 1_000
_MOST_RUNS: Final = 16  # of one name that are remembered
_MOST_SHOWN: Final = 80  # characters of an identity that another instance has told


class Other(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """To an instance: another log had your name here.

    Attributes:
        before: the identity of that log.
    """

    before: str


@dataclass(slots=True)
class _Run:
    """A run of an instance.

    Attributes:
        nonce: its number.
        came: when it had first answered, in seconds.
        is_refused: whether it has answered since another one did, and so is not let in any more.
    """

    nonce: int
    came: float
    is_refused: bool = False


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Other)


class Identities:
    """What is known of the instances that have been met, by their names.

    Args:
        instance: name of this one.
        log_id: identity of its log.
        remembered: by name, the identities of the logs that others had in earlier runs.
        events: where it is said who has come.
    """

    def __init__(
        self, instance: str, log_id: str, remembered: Mapping[str, str], events: Log
    ) -> None:
        self._instance: Final = instance
        self._log_id: Final = log_id
        self._logs: Final = dict(remembered)
        self._events: Final = events
        self._runs: Final[dict[str, deque[_Run]]] = {}  # by name; the last one is there

    def remembered(self) -> dict[str, str]:
        """By name, the identities of the logs that there are."""
        return dict(self._logs)

    def is_another_run(self, theirs: Hello) -> bool:
        """Whether another run of an instance was there last; then this one has to answer first."""
        runs = self._runs.get(theirs.instance)
        return runs is not None and runs[-1].nonce != theirs.nonce

    def may_be_over(self, theirs: Hello, asked: float) -> bool:
        """Whether a run that has answered may have ended before the one began that was there last.

        Args:
            theirs: what it has said.
            asked: when it was said to it what it has answered, in seconds.
        """
        return self.is_another_run(theirs) and self._runs[theirs.instance][-1].came >= asked

    def refusal(self, theirs: Hello, *, has_answered: bool) -> str | None:
        """Why a run is not let in, for another one with the same log runs, too; else None.

        Args:
            theirs: what it has said.
            has_answered: whether it is sure to be there; a run that has been refused once is.
        """
        if not self.is_another_run(theirs):
            return None
        runs = self._runs[theirs.instance]
        run = next((one for one in runs if one.nonce == theirs.nonce), None)
        if run is None:
            return None
        run.is_refused |= has_answered
        if not run.is_refused:
            return None
        return (
            f"another {theirs.instance} has connected to {self._instance} with the same "
            "transaction log, and both run: the data of one are a copy; stop one of them, and give "
            "it a Name of its own and an empty directory for its journals"
        )

    def meet(self, theirs: Hello, now: float) -> str | None:
        """Take note of an instance that there is a link with.

        Args:
            theirs: what it has said.
            now: the time, in seconds.

        Returns:
            The identity of the log that the instance of this name had before; None if it is this
            one, or none is known.
        """
        name = theirs.instance
        runs = self._runs.setdefault(name, deque(maxlen=_MOST_RUNS))
        before = self._logs.pop(name, None)
        if before != theirs.log:
            runs.clear()
        if not runs or runs[-1].nonce != theirs.nonce:
            runs.append(_Run(theirs.nonce, now))
        self._logs[name] = theirs.log
        while len(self._logs) > _MOST_NAMES:
            oldest = next(iter(self._logs))
            del self._logs[oldest]
            self._runs.pop(oldest, None)
        return before if before != theirs.log else None

    def tell(
        self, address: str, before: str, now: str, say: Callable[[bytes], None], *, is_empty: bool
    ) -> None:
        """Say that an instance is another one than before, here and to that instance.

        Args:
            address: its name and address.
            before: the identity of the log that the one of its name had.
            now: that of its log.
            say: says something to it.
            is_empty: whether its log is.
        """
        self._events.emit(
            "1E-0030" if is_empty else "1E-0031",
            instance=self._instance,
            other=address,
            before=before,
            now=now,
        )
        say(_ENCODER.encode(Other(before)))

    def hear(self, peer: str, body: bytes) -> None:
        """Another instance says that it knows somebody else by our name."""
        try:
            word = _DECODER.decode(body)
        except MALFORMED:
            return
        self._events.emit(
            "1E-0032",
            instance=self._instance,
            other=peer,
            before=word.before[:_MOST_SHOWN],
            now=self._log_id,
        )
