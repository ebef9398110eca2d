"""The table of transport filters, and the factory that makes those of a transport."""

from __future__ import annotations

import posixpath
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from config_schema.spec import ModuleSpec, ModuleUse
from server.security.interceptors.base import FilterError, TransportFilter
from server.security.interceptors.correlation_ids import CorrelationIdTimestamper
from server.security.interceptors.custom import load_filter
from server.security.interceptors.topic_translators import (
    make_conflated_topic_translator,
    make_topic_translator,
)


def _make_timestamper(use: ModuleUse) -> TransportFilter:
    return CorrelationIdTimestamper(time.time, override=use.options.flag("Override", default=False))


TransportFilterFactory = Callable[[ModuleUse], TransportFilter]

BUILT_IN: Final[Mapping[str, TransportFilterFactory]] = {
    "amps-topic-translator": make_topic_translator,
    "amps-conflated-topic-translator": make_conflated_topic_translator,
}
"""Filters that need no Modules entry, by their name in configurations."""

LIBRARIES: Final[Mapping[str, TransportFilterFactory]] = {
    "libamps_transport_filter_correlation_id_timestamper.so": _make_timestamper,
}
"""Filters that a configuration loads, by the base name of their library."""


def make_filters(
    uses: Iterable[ModuleUse], modules: Iterable[ModuleSpec]
) -> tuple[TransportFilter, ...]:
    """Make the filters of one transport, and return them in the order of the configuration.

    Args:
        uses: the transport's TransportFilter elements.
        modules: the modules that the configuration loads.

    Raises:
        FilterError: a filter cannot be made.
    """
    loaded = {module.name: module for module in modules}
    return tuple(_make(use, loaded) for use in uses)


def _make(use: ModuleUse, loaded: Mapping[str, ModuleSpec]) -> TransportFilter:
    factory = BUILT_IN.get(use.module)
    if factory is not None:
        return factory(use)
    module = loaded.get(use.module)
    if module is None:
        raise FilterError(f"{use.location}: there is no transport filter {use.module!r}")
    library = posixpath.basename(module.library)
    factory = LIBRARIES.get(library) or LIBRARIES.get(f"{library}.so")
    return load_filter(module, use) if factory is None else factory(use)
