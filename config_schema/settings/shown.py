"""Values as written in a configuration."""

from collections.abc import Mapping
from typing import Final

from config_schema.schema import elements
from config_schema.units import INTERVAL_UNITS, SIZE_UNITS

NOT_SET_TEXT: Final = "not set"

_SIZES: Final = {unit.upper(): SIZE_UNITS[unit] for unit in ("tb", "gb", "mb", "kb")} | {"": 1}
_INTERVALS: Final = dict(sorted(INTERVAL_UNITS.items(), key=lambda pair: -pair[1]))


def format_default_value(path: str, value: object) -> str:
    """Format the value of a setting that is not written in the configuration.

    Args:
        path: the canonical path of its element. The element's documentation has words for an
            absent value, and its type has the unit of a number.
        value: as in the description: sizes in bytes, intervals in nanoseconds.
    """
    doc = elements().get(path)
    if value is None or (doc is not None and doc.default is not None and _is_plain(value)):
        return (doc.default if doc else None) or NOT_SET_TEXT
    return format_setting_value(path, value)


def format_setting_value(path: str, value: object) -> str:
    """Format one value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ", ".join(format_setting_value(path, one) for one in value)
    if isinstance(value, int):
        doc = elements().get(path)
        return _number(doc.type_name if doc else "", value)
    return str(value)


def _is_plain(value: object) -> bool:
    """Return true if the documented default is as exact; derived names carry more information."""
    return isinstance(value, bool | int)


def _number(type_name: str, value: int) -> str:
    match type_name:
        case "size":
            return _with_unit(value, _SIZES)
        case "interval" | "expiration":
            return _with_unit(value, _INTERVALS)
        case "percent":
            return f"{value}%"
        case "fileMask":
            return f"{value:04o}"
    return str(value)


def _with_unit(value: int, units: Mapping[str, int]) -> str:
    """Format a quantity in the largest unit of which it is a whole multiple."""
    fitting = (unit for unit, factor in units.items() if value and value % factor == 0)
    unit = next(fitting, "")
    return f"{value // units[unit]}{unit}" if unit else str(value)
