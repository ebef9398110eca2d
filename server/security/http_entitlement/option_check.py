"""Validates the options when a configuration is verified.

Files are read, but their problems are warnings: a configuration may be verified on a machine other
than the one that the instance will run on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from config_schema.catalogue import OptionProblem
from config_schema.spec import Options
from config_schema.units import UnitError, parse_bool, parse_count, parse_interval
from server.security.http_client import HttpClientError
from server.security.http_client_options import read_tls, split_header
from server.security.http_entitlement.settings import (
    TOKEN,
    TOKENS,
    find_uri_problem,
    is_entitlement_only,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_START_FAILS = "a start would fail, if this is the machine that it is for"


def check_uri(text: str) -> str | None:
    """Return the problem of a ResourceURI; None if there is none."""
    problem = find_uri_problem(text)
    return None if problem is None else f"cannot be used: {problem}"


def check_header(text: str) -> str | None:
    """Return the problem of an HTTPHeader; None if there is none."""
    try:
        split_header(text)
    except ValueError as error:
        return str(error)
    unknown_names = [name for name in TOKEN.findall(text) if name not in TOKENS]
    if unknown_names:
        return f"{{{{{unknown_names[0]}}}}} is not known: expected one of {', '.join(TOKENS)}"
    return None


def check_timeout(text: str) -> str | None:
    """Return the problem of a number of milliseconds; None if there is none."""
    return _problem(lambda: parse_count(text)) or (
        None if parse_count(text) else "has to be 1 at least: nothing is there at once"
    )


def check_validity(text: str) -> str | None:
    """Return the problem of an EntitlementTimeout; None if there is none."""
    return _problem(lambda: parse_interval(text, "ms"))


def check_switch(text: str) -> str | None:
    """Return the problem of EntitlementOnly, which may be empty; None if there is none."""
    return _problem(lambda: parse_bool(text)) if text.strip() else None


def _problem(read: Callable[[], object]) -> str | None:
    try:
        read()
    except UnitError as error:
        return str(error)
    return None


def check_authentication(own_options: Options, inherited: Options) -> Iterator[OptionProblem]:
    """Yield the problems of the options of a use for authentication."""
    options = _merged_options(own_options, inherited)
    if _is_entitlement_only(options):
        yield OptionProblem(
            "EntitlementOnly",
            "is given: the module cannot authenticate users",
            "name another module for Authentication, or load the library once more without it",
        )
    yield from _check_request_options(own_options, options)


def check_entitlement(own_options: Options, inherited: Options) -> Iterator[OptionProblem]:
    """Yield the problems of the options of a use for entitlement."""
    options = _merged_options(own_options, inherited)
    if not _is_entitlement_only(options):
        return
    if not options.get("ResourceURI"):
        yield OptionProblem(
            "ResourceURI", "is missing: with EntitlementOnly it says where documents come from"
        )
    if options.get("EntitlementTimeout") is not None:
        yield OptionProblem(
            "EntitlementTimeout",
            "has no effect with EntitlementOnly: permissions are kept until they are reset",
            is_warning=True,
        )
    yield from _check_request_options(own_options, options)


def _check_request_options(own_options: Options, options: Options) -> Iterator[OptionProblem]:
    if own_options.get("ReuseConnections") is not None:
        yield OptionProblem(
            "ReuseConnections",
            "has no effect here",
            "give it where the module is loaded: it is for all of its uses",
            is_warning=True,
        )
    if options.get("Key") and not options.get("Certificate"):
        yield OptionProblem("Certificate", "is missing: Key is the key of a certificate")
    elif (options.get("ResourceURI") or "").lower().startswith("https:"):
        yield from _check_files(options)


def _check_files(options: Options) -> Iterator[OptionProblem]:
    try:
        read_tls(options).make_context()
    except HttpClientError as error:
        yield OptionProblem("ResourceURI", f"cannot be asked: {error}", _START_FAILS, True)
    except UnitError:
        return  # reported already


def _is_entitlement_only(options: Options) -> bool:
    try:
        return is_entitlement_only(options)
    except UnitError:
        return False  # reported already


def _merged_options(own_options: Options, inherited: Options) -> Options:
    """Return the options of a use, with the defaults of the loaded module."""
    names = {option.name for option in own_options}
    return Options((*own_options, *(option for option in inherited if option.name not in names)))
