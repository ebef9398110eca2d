"""Catalogue of the libraries that authenticate with LDAP directories and Kerberos realms.

Source: AMPS User Guide, Multimethod Authentication Module.
"""

from __future__ import annotations

from typing import Final

from config_schema.catalogue import LibraryRule, ModuleKind, ModuleRule, OptionRule, ValueKind
from server.security.ldap.directory import LdapEncryption
from server.security.multi import module as multi
from server.security.multi import options as multi_options

KERBEROS_OPTIONS: Final = (
    OptionRule(
        "Kerberos.Keytab", ValueKind.TEXT, "file with the keys; Kerberos.SPN is required as well"
    ),
    OptionRule(
        "Kerberos.SPN",
        ValueKind.TEXT,
        "name of the service, such as AMPS/host.domain.com; Kerberos.Keytab is required as well",
    ),
)

MULTI_AUTHENTICATION: Final = LibraryRule(
    multi.LIBRARY,
    {
        ModuleKind.AUTHENTICATION: ModuleRule(
            multi.LIBRARY,
            "accepts users whom a directory (LDAP) or a Kerberos realm knows",
            (
                *KERBEROS_OPTIONS,
                OptionRule("LDAP.Host", ValueKind.TEXT, "host of the directory"),
                OptionRule(
                    "LDAP.Port",
                    ValueKind.COUNT,
                    f"its port; {multi_options.DEFAULT_PORT_LDAPS} with LDAP.Encryption ldaps",
                    default=multi_options.DEFAULT_PORT,
                ),
                OptionRule(
                    "LDAP.ProtocolVersion",
                    ValueKind.CHOICE,
                    "version of LDAP that it speaks",
                    default=multi_options.DEFAULT_VERSION,
                    choices=("2", "3"),
                ),
                OptionRule(
                    "LDAP.BaseDN",
                    ValueKind.TEXT,
                    "distinguished name of the entry below which users are",
                ),
                OptionRule(
                    "LDAP.ServiceAccountDN",
                    ValueKind.TEXT,
                    "distinguished name of a user that may search there; anonymous if left out",
                ),
                OptionRule(
                    "LDAP.ServiceAccountPasswordFile",
                    ValueKind.TEXT,
                    "file with the password of the service account",
                ),
                OptionRule(
                    "LDAP.UserAttribute",
                    ValueKind.TEXT,
                    "attribute that has the user's name (an extension of ours); "
                    f"{' and '.join(multi_options.DEFAULT_USER_ATTRIBUTES)} if left out",
                    repeatable=True,
                ),
                OptionRule(
                    "LDAP.Encryption",
                    ValueKind.CHOICE,
                    "how passwords are kept secret on their way (an extension of ours)",
                    default=LdapEncryption.NONE.value,
                    choices=tuple(one.value for one in LdapEncryption),
                ),
                OptionRule(
                    "LDAP.CAFile",
                    ValueKind.TEXT,
                    "PEM file with the authorities that the directory's certificate may be signed "
                    "by (an extension of ours); those of the system if left out",
                ),
                OptionRule(
                    "AllowAnonymous",
                    ValueKind.BOOLEAN,
                    "whether logons without a password are accepted, as an anonymous user",
                    default="false",
                ),
                OptionRule(
                    "DefaultAuthenticationMechanism",
                    ValueKind.CHOICE,
                    "the mechanism that the module is configured for",
                    choices=("kerberos", "ldap"),
                ),
            ),
            check=multi_options.check,
        )
    },
    open_options=True,  # where it is loaded, AMPS ignores the options that it is given
)
