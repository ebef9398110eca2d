"""Catalogue of libamps_oauth_authentication, with its options.

Source: AMPS User Guide, OAuth Authentication.
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
from server.security.http_entitlement.option_check import check_timeout
from server.security.oauth import module as oauth
from server.security.oauth.tokens import ALGORITHMS

_UNNAMED: Final = "clients with a code get the user name that they claim"

_OAUTH_OPTIONS: Final = (
    OptionRule(
        "TokenEndpoint",
        ValueKind.TEXT,
        "URL where the authorization server gives an access token for a code",
        check=oauth.check_endpoint,
    ),
    OptionRule("RedirectURI", ValueKind.TEXT, "URI that the code was asked for with"),
    OptionRule(
        "ClientID", ValueKind.TEXT, "client id of this instance at the authorization server"
    ),
    OptionRule("ClientSecret", ValueKind.TEXT, "client secret of this instance"),
    OptionRule(
        "GrantType",
        ValueKind.CHOICE,
        "credential that clients present",
        default=oauth.DEFAULT_GRANT_TYPE,
        choices=(oauth.DEFAULT_GRANT_TYPE,),
    ),
    OptionRule(
        "RequestTimeout",
        ValueKind.COUNT,
        "milliseconds that an answer may take",
        default=oauth.DEFAULT_REQUEST_TIMEOUT,
        check=check_timeout,
    ),
    OptionRule(
        "RetryCount",
        ValueKind.COUNT,
        "how often to ask again if there is no answer",
        default=oauth.DEFAULT_RETRY_COUNT,
    ),
    OptionRule(
        "HTTPHeader",
        ValueKind.TEXT,
        "name: value, sent to the TokenEndpoint",
        repeatable=True,
        check=oauth.check_header,
    ),
    *https_options("server"),
    OptionRule(
        "KeySet",
        ValueKind.TEXT,
        "URL or file of the keys (JWKS) that bearer tokens are checked with",
        check=oauth.check_key_set,
    ),
    OptionRule(
        "Issuer",
        ValueKind.TEXT,
        "required issuer of a token (iss)",
    ),
    OptionRule(
        "Audience",
        ValueKind.TEXT,
        "required audience of a token (aud); one of several is enough",
        repeatable=True,
    ),
    OptionRule(
        "Algorithms",
        ValueKind.CHOICES,
        "with which tokens may be signed",
        default=oauth.DEFAULT_ALGORITHMS,
        choices=ALGORITHMS,
    ),
    OptionRule(
        "UserNameClaim",
        ValueKind.TEXT,
        "claim of a token that is the name of the user",
        default=oauth.DEFAULT_USER_CLAIM,
    ),
    OptionRule(
        "ClockSkew",
        ValueKind.INTERVAL,
        "by how much the issuer's clock may differ",
        default=oauth.DEFAULT_CLOCK_SKEW,
    ),
)

OAUTH: Final = LibraryRule(
    oauth.LIBRARY,
    {
        ModuleKind.AUTHENTICATION: ModuleRule(
            oauth.LIBRARY,
            "accepts users with a code or a token of an OAuth authorization server",
            tuple(
                replace(rule, absence=_UNNAMED) if rule.name == "KeySet" else rule
                for rule in _OAUTH_OPTIONS
            ),
            at_least=(MinimumOptions(1, ("TokenEndpoint", "KeySet")),),
            check=oauth.check,
            together=(
                ("TokenEndpoint", "RedirectURI", "ClientID", "ClientSecret"),
                ("KeySet", "Issuer", "Audience"),
            ),
        )
    },
    options=_OAUTH_OPTIONS,
)
