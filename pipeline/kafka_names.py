"""Options under the names that they have in Spark's source for Kafka."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pipeline.errors import OptionError

_OWN_NAMES: Final = {"failondataloss": "fail_on_data_loss"}


def with_own_names(options_by_name: Mapping[str, str]) -> dict[str, str]:
    """Return options under the names that they have here.

    Args:
        options_by_name: names in lower case, and texts.

    Raises:
        OptionError: an option is there under both of its names.
    """
    for name, own_name in _OWN_NAMES.items():
        if name in options_by_name and own_name in options_by_name:
            raise OptionError(f"options failOnDataLoss and {own_name}: expected one of them")
    return {_OWN_NAMES.get(name, name): text for name, text in options_by_name.items()}
