"""What comes back into one queue is none for others over the same topics, wherever that was."""

from __future__ import annotations

from server.queues.topic.redrive import RedrivePublishers, redrive_publisher
from server.storage.journal.publisher_table import publisher_part, server_made_identity


def test_what_was_redriven_at_any_instance_is_known() -> None:
    author = redrive_publisher("json", "jobs")
    strangers = RedrivePublishers([author], "here")
    for path, publisher in (("", "here"), ("A", "A"), ("A@group,B", "A")):
        for run in (0, 1, 2**32 - 1):
            identity = server_made_identity(author.client_hash, publisher, run)
            assert publisher_part(identity) in strangers.publisher_parts(path), (path, run)
