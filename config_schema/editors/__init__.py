"""The schemas that editors complete and check configurations with.

    python -m config_schema.editors schemas

`amps_config.xsd` is XSD 1.1, which hardly any editor reads, and it describes a configuration after
Include and variables are resolved. Editors see the file before that. So two schemas are made from
it, of what may be written: elements in any order, `Include` wherever elements may stand,
`${VARIABLE}` in place of any value, older names beside today's. What is required, and what may
stand only once, an editor cannot know, since an included file may have it; XSD 1.0 cannot say it of
elements in any order anyway. `ampServer --verify-config` checks all of it.

    values.py   the values of elements, in the terms of both languages
    xsd.py      XML Schema 1.0: xmllint, VS Code, IntelliJ
    rnc.py      RELAX NG in compact syntax: Emacs

The output depends on the schema alone: a test compares the files that are shipped.
"""

from config_schema.editors.rnc import relax_ng
from config_schema.editors.xsd import xml_schema

__all__ = ["SCHEMAS", "schema_text"]

SCHEMAS = {"xsd": xml_schema, "rnc": relax_ng}
"""What makes the schema of each language, by the ending of its file."""


def schema_text(language: str) -> str:
    """Return the schema in one of the languages, a key of SCHEMAS."""
    return SCHEMAS[language]()
