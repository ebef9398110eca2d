"""amps-topic-translator and amps-conflated-topic-translator: redirect commands to another topic.

Source: AMPS User Guide, Transport Filters.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from config_schema.spec import ModuleUse
from server.expressions.topic_names import TopicError, TopicSelector, select_topics
from server.security.interceptors.base import FilterError, IncomingCommand, Verdict

_SUBSCRIBING: Final = frozenset(
    ("subscribe", "sow_and_subscribe", "delta_subscribe", "sow_and_delta_subscribe")
)
_CONFLATION: Final = "conflation="


class TopicTranslator:
    """Translates the topics of all commands; the first translation that matches applies.

    Args:
        translations: pairs of the topics to translate and the new name.
    """

    header_only = True

    def __init__(self, translations: Iterable[tuple[TopicSelector, str]]) -> None:
        self._translations = tuple(translations)

    def filter(self, command: IncomingCommand) -> Verdict:
        """Translate the topic of a command if a translation matches it; pass every command."""
        topic = command.header.topic
        if topic is not None:
            for original, translated in self._translations:
                if original.matches(topic):
                    command.header.topic = translated
                    break
        return Verdict.PASS


class ConflatedTopicTranslator:
    """Translates the topics of subscriptions, and makes these conflated.

    Args:
        translations: triples of the topics to translate, the new name, and the conflation interval
            for subscriptions without one.
    """

    header_only = True

    def __init__(self, translations: Iterable[tuple[TopicSelector, str, str]]) -> None:
        self._translations = tuple(translations)

    def filter(self, command: IncomingCommand) -> Verdict:
        """Translate the topic of a subscription if a translation matches it; pass every command."""
        header = command.header
        if header.topic is not None and header.command in _SUBSCRIBING:
            for original, translated, interval in self._translations:
                if original.matches(header.topic):
                    header.topic = translated
                    header.short_options = _with_conflation(header.options, interval)
                    header.long_options = None
                    break
        return Verdict.PASS


def _with_conflation(options: str | None, interval: str) -> str:
    if not options:
        return _CONFLATION + interval
    names = (option.strip().lower() for option in options.split(","))
    if any(name.startswith(_CONFLATION) for name in names):
        return options
    return f"{options},{_CONFLATION}{interval}"


def make_topic_translator(use: ModuleUse) -> TopicTranslator:
    """Make amps-topic-translator from its options: Topic, as original:translated."""
    return TopicTranslator(
        (_selector(original, use), translated)
        for original, translated in (_split(text, 2, use) for text in use.options.all("Topic"))
    )


def make_conflated_topic_translator(use: ModuleUse) -> ConflatedTopicTranslator:
    """Make amps-conflated-topic-translator: its Topic options are original:translated:interval."""
    return ConflatedTopicTranslator(
        (_selector(original, use), translated, interval)
        for original, translated, interval in (
            _split(text, 3, use) for text in use.options.all("Topic")
        )
    )


def _split(text: str, parts: int, use: ModuleUse) -> list[str]:
    """Split from the right, since the original may be an expression with colons of its own."""
    words = [part.strip() for part in text.rsplit(":", parts - 1)]
    if len(words) < parts or not all(words):
        expected = ":".join(("original", "translated", "interval")[:parts])
        raise FilterError(f"{use.location}: {use.module}: Topic {text!r}: expected {expected}")
    return words


def _selector(original: str, use: ModuleUse) -> TopicSelector:
    try:
        return select_topics(original)
    except TopicError as error:
        raise FilterError(f"{use.location}: {use.module}: Topic: {error}") from None
