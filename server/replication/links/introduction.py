"""The introduction of an instance when a link begins: its configuration, and its runs.

Source: docs/formats/replication.md, Hello.
"""

from __future__ import annotations

import msgspec

from config_schema.topology import InstanceDescription


class PeerIntroduction(InstanceDescription, frozen=True):
    """The description of an instance that is sent when a link begins.

    Attributes:
        runs: the first txid and the number of each run that has recorded entries of its log, and of
            the current run; empty if its version does not distinguish runs.
        read: by name of another instance, the position up to which its log has been received: the
            identity of the log, the txid, and the run that recorded the entry.
    """

    runs: tuple[tuple[int, int], ...] = ()
    read: dict[str, tuple[str, int, int]] = msgspec.field(default_factory=dict)
