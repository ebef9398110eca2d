"""Catalogue of the library that gets permissions from a web service, with its options.

Source: AMPS User Guide, RESTful Authentication and Entitlements.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from config_schema.catalogue import (
    LibraryRule,
    MinimumOptions,
    ModuleKind,
    ModuleRule,
    OptionRule,
    ValueKind,
)
from server.app.wiring.catalogue_web import https_options
from server.security.http_entitlement import option_check, settings

_OPTIONS: Final = (
    OptionRule(
        "ResourceURI",
        ValueKind.TEXT,
        "URL of permission documents; {{USER_NAME}} stands for the user",
        check=option_check.check_uri,
    ),
    OptionRule(
        "CredentialStore",
        ValueKind.TEXT,
        "name of the permission store that uses of the module share; the ResourceURI if left out",
    ),
    OptionRule(
        "ConnectionTimeout",
        ValueKind.COUNT,
        "milliseconds that a connection may take to be made",
        default=settings.DEFAULT_CONNECTION_TIMEOUT,
        check=option_check.check_timeout,
    ),
    OptionRule(
        "RequestTimeout",
        ValueKind.COUNT,
        "milliseconds that an answer may take",
        default=settings.DEFAULT_REQUEST_TIMEOUT,
        check=option_check.check_timeout,
    ),
    OptionRule(
        "RetryCount",
        ValueKind.COUNT,
        "how often to ask again if there is no answer",
        default=settings.DEFAULT_RETRY_COUNT,
    ),
    OptionRule(
        "HTTPHeader",
        ValueKind.TEXT,
        "name: value, sent to the service; {{AMPS_PASSWORD}} and the like stand for what a client"
        " has shown",
        repeatable=True,
        check=option_check.check_header,
    ),
    OptionRule(
        "EntitlementTimeout",
        ValueKind.TEXT,
        "milliseconds, or an interval, after which a user with connections may get other"
        " permissions",
        check=option_check.check_validity,
    ),
    OptionRule(
        "ReuseConnections",
        ValueKind.BOOLEAN,
        "keep connections to the service, where the module is loaded",
        default="disabled",
    ),
    OptionRule(
        "ServerAcceptsEmptyAuthId",
        ValueKind.BOOLEAN,
        "ask the service also about logons without a user name",
        default="false",
    ),
    OptionRule(
        "EntitlementOnly",
        ValueKind.TEXT,
        "request permissions without credentials, for users that another module authenticates",
        check=option_check.check_switch,
    ),
    *https_options("service"),
)

HTTP_ENTITLEMENT: Final = LibraryRule(
    settings.LIBRARY,
    {
        ModuleKind.AUTHENTICATION: ModuleRule(
            settings.LIBRARY,
            "asks a web service whether a user may log on",
            tuple(
                replace(rule, required=True) if rule.name == "ResourceURI" else rule
                for rule in _OPTIONS
            ),
            check=option_check.check_authentication,
        ),
        ModuleKind.ENTITLEMENT: ModuleRule(
            settings.LIBRARY,
            "takes permissions of users from a web service",
            _OPTIONS,
            at_least=(MinimumOptions(1, ("ResourceURI", "CredentialStore")),),
            check=option_check.check_entitlement,
        ),
    },
    options=_OPTIONS,
)
