"""The SOW topics that an instance has opened: at the start, and when its configuration changes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from server.app.wiring.provision_sow import OpenTopic, TopicOpener
from server.expressions.functions.lookups import declared_lookups
from server.storage.sow.group_commit import SowCommitter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from config_schema.spec import InstanceSpec, ModuleSpec, TopicSpec
    from server.engine.engine import Engine
    from server.storage.sow.lookups import ValueLookups
    from server.topics.record_source import RecordSource
    from server.util.log_protocol import ServerLog


class OpenTopics:
    """The SOW topics of an instance, with the files of their records.

    Args:
        spec: the instance, as it was started.
        engine: gets the topics.
        lookups: the lookups of functions in records.
        post: executes a callback on the engine's thread.
        log: gets entries about recovery and failures to synchronise.

    Attributes:
        committer: puts the files on stable storage.
    """

    def __init__(
        self,
        spec: InstanceSpec,
        engine: Engine,
        lookups: ValueLookups,
        post: Callable[[Callable[[], None]], None],
        log: ServerLog,
    ) -> None:
        self.committer: Final = SowCommitter(post, start=engine.scheduler.start_task)
        settings = engine.settings
        self._opener = TopicOpener(settings.message_types, settings.functions, self.committer, log)
        self._engine = engine
        self._lookups = lookups
        self._declared_lookups = declared_lookups(spec.modules)
        self._topics: list[OpenTopic] = []

    def __iter__(self) -> Iterator[OpenTopic]:
        return iter(self._topics)

    def open(self, spec: TopicSpec, modules: Sequence[ModuleSpec]) -> OpenTopic:
        """Open a topic, and recover its records from its file; the caller adds or closes it.

        Args:
            spec: its description.
            modules: the modules that the configuration loads.

        Raises:
            ProvisionError: a file or module cannot be used.
        """
        return self._opener.open(spec, modules)

    def add(self, topic: OpenTopic) -> None:
        """Register a topic with the engine; it is closed with the instance."""
        self._topics.append(topic)
        self._engine.sow_registry.add(topic.sow, topic.commit)

    def remove(self, source: RecordSource) -> None:
        """Remove a topic or view from the engine; files of records stay open until `close`."""
        self._engine.sow_registry.remove(source)
        for topic in list(self._topics):
            if topic.sow is source and topic.sow.spec.file_name is None:
                self._topics.remove(topic)
                topic.close()

    def has_open(self, path: str) -> bool:
        """Return whether a file of records is open, perhaps that of a topic that was removed."""
        return any(topic.sow.spec.file_name == path for topic in self._topics)

    def open_lookups(self) -> None:
        """Have lookups search in the topics that there are now."""
        self._lookups.open(self._declared_lookups, self._engine.sow_registry.find)

    def close(self) -> None:
        """Put everything on stable storage, and release the files."""
        with ExitStack() as closing:  # a failure keeps no other file open
            closing.callback(self.committer.close)
            for topic in self._topics:
                closing.callback(topic.close)
