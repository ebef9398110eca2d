"""Selects the entries that a destination without a cursor lacks, according to its `DedupState`."""

from __future__ import annotations

from collections.abc import Sequence

from server.replication.core.columns import by_client, compact_column
from server.replication.core.dedup_window import DedupWindow, is_identity_made_by
from server.replication.core.peer_instance import PeerInstance
from server.replication.core.routes import LinkRoute, hops
from server.storage.journal import EntryBatch
from server.storage.journal.format.layout import CLIENT, SEQUENCE, SOURCE_TXID
from server.storage.journal.runs import has_recorded


class MissingEntries:
    """The entries that a destination lacks, according to its `DedupState`.

    Args:
        peer: the connected instance.
        peer_dedup_window: the messages that it has of each publisher.
        route: decides which entries are sent, including those that have passed through it.
    """

    def __init__(
        self, peer: PeerInstance, peer_dedup_window: DedupWindow, route: LinkRoute
    ) -> None:
        self.route = route
        self._peer = peer
        self._peer_dedup_window = peer_dedup_window

    def select_missing(self, batch: EntryBatch) -> EntryBatch:
        """Return the entries of a batch that it lacks."""
        rows, peer = batch.rows, self._peer
        positions: Sequence[int] = range(len(rows))
        path = hops(batch.origin.path)
        if path and path[0].name == peer.name:
            # The peer has the entries that it numbered itself, if they are in its present log.
            positions = [
                position
                for position in positions
                if rows[position][SEQUENCE] < peer.log_start_txid
                or not is_identity_made_by(
                    peer.name, rows[position][CLIENT], rows[position][SOURCE_TXID]
                )
                or not has_recorded(peer.runs, rows[position][CLIENT], rows[position][SEQUENCE])
            ]
        if not positions:
            return batch.pick(())
        missing: list[int] = []
        for client, indexes in by_client(
            compact_column([rows[position][CLIENT] for position in positions])
        ):
            sequences = compact_column([rows[positions[index]][SEQUENCE] for index in indexes])
            new_positions = self._peer_dedup_window.new_positions(client, sequences)
            missing += [positions[indexes[new_position]] for new_position in new_positions]
        return batch if len(missing) == len(rows) else batch.pick(sorted(missing))
