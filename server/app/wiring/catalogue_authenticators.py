"""Catalogue of the libraries that provide an instance's credentials for logons to other instances.

Source: AMPS User Guide, Command Execution Authenticator; Multimethod Authenticator.
"""

from __future__ import annotations

from typing import Final

from config_schema.catalogue import LibraryRule, ModuleKind, ModuleRule, OptionRule, ValueKind
from server.app.wiring.catalogue_directories import KERBEROS_OPTIONS
from server.security.outgoing.authenticators import DEFAULT_MAX_LENGTH, EXEC_LIBRARY, MULTI_LIBRARY

EXEC: Final = LibraryRule(
    EXEC_LIBRARY,
    {
        ModuleKind.AUTHENTICATOR: ModuleRule(
            EXEC_LIBRARY,
            "logs on to other instances with the output of a command",
            (
                OptionRule(
                    "Command",
                    ValueKind.TEXT,
                    "what a shell runs; {{AMPS_USER_NAME}} stands for the user",
                    required=True,
                ),
                OptionRule("UserName", ValueKind.TEXT, "name of the user", required=True),
                OptionRule(
                    "MaxLength",
                    ValueKind.COUNT,
                    "bytes of the output that are read",
                    default=DEFAULT_MAX_LENGTH,
                ),
            ),
        )
    },
    open_options=True,  # where it is loaded, AMPS ignores the options that it is given
)

MULTI: Final = LibraryRule(
    MULTI_LIBRARY,
    {
        ModuleKind.AUTHENTICATOR: ModuleRule(
            MULTI_LIBRARY,
            "logs on to other instances with a Kerberos ticket, or a password of a directory",
            (
                *KERBEROS_OPTIONS,
                OptionRule("LDAP.Username", ValueKind.TEXT, "name of the user"),
                OptionRule("LDAP.PasswordFile", ValueKind.TEXT, "file that holds the password"),
            ),
            one_of=(("LDAP.Username", "Kerberos.SPN"),),
            together=(
                ("LDAP.Username", "LDAP.PasswordFile"),
                ("Kerberos.Keytab", "Kerberos.SPN"),
            ),
        )
    },
    open_options=True,  # where it is loaded, AMPS ignores the options that it is given
)
