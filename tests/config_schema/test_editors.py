"""The schemas for editors: what they accept, what they mark, and that they are those shipped."""

import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from lxml import etree

from config_schema import schema
from config_schema.catalogue import ModuleKind
from config_schema.editors import SCHEMAS, schema_text
from server.app.wiring.catalogue import ProgramCatalogue
from tests.support.waiting import WAIT_SECONDS

PROJECT: Final = Path(__file__).parents[2]
SHIPPED: Final = PROJECT / "schemas"
SAMPLES: Final = sorted((PROJECT / "sample_configs").rglob("*.xml"))

OPTIONS_OF: Final[Mapping[ModuleKind, str]] = {
    ModuleKind.ON: "Actions/Action/On",
    ModuleKind.DO: "Actions/Action/Do",
    ModuleKind.IF: "Actions/Action/If",
    ModuleKind.AUTHENTICATION: "Authentication",
    ModuleKind.ENTITLEMENT: "Entitlement",
    ModuleKind.AUTHENTICATOR: "Replication/Destination/Transport/Authenticator",
    ModuleKind.TRANSPORT_FILTER: "Transports/Transport/TransportFilter",
    ModuleKind.KEY_GENERATOR: "SOW/Topic/KeyGenerator",
}


Checker = etree.XMLSchema | etree.RelaxNG


@cache
def checker(language: str) -> Checker:
    """What xmllint checks with."""
    text = schema_text(language)
    if language == "xsd":
        return etree.XMLSchema(etree.fromstring(text.encode()))
    rnc2rng = pytest.importorskip("rnc2rng")
    return etree.RelaxNG(etree.fromstring(rnc2rng.dumps(rnc2rng.loads(text)).encode()))


@pytest.mark.parametrize("language", SCHEMAS)
def test_the_schemas_that_are_shipped_are_up_to_date(language: str) -> None:
    """After a change of the schema: make docs."""
    assert (SHIPPED / f"amps-config.{language}").read_text("utf-8") == schema_text(language)


@pytest.mark.parametrize("language", SCHEMAS)
@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_samples_are_accepted(path: Path, language: str) -> None:
    """As they are written: with Include, variables, and elements in any order."""
    document = etree.parse(path)
    check = checker(language)
    if document.getroot().tag == "AMPSConfig":
        assert check.validate(document), check.error_log


ACCEPTED: Final = (
    "<Admin><InetAddr>${PORT}</InetAddr></Admin>",
    "<Include comment='true'>part.xml</Include>",
    "<SOW><TopicDefinition><Topic>a</Topic><Durability>TRANSIENT</Durability></TopicDefinition></SOW>",
    "<SOW><View><UnderlyingTopic><Join>[a].[/x]=[b].[/x]</Join></UnderlyingTopic></View></SOW>",
    "<Modules><Module><Options><Own><Inner a='1'>x</Inner></Own></Options></Module></Modules>",
    "<Logging><Target><Levels>info, Error</Levels></Target></Logging>",
    "<TransactionLog><JournalSize>1.5 gb</JournalSize></TransactionLog>",
)
MARKED: Final = (
    "<Admin><InetAdr>8085</InetAdr></Admin>",
    "<Admin><Interval>soon</Interval></Admin>",
    "<SOW><Topic><Durability>forever</Durability></Topic></SOW>",
    "<Key>/id</Key>",
    "<Admin galvanometer='no'/>",
    "<Name/>",
    "<Logging><Target><Levels>info, loud</Levels></Target></Logging>",
)


@pytest.mark.parametrize("language", SCHEMAS)
@pytest.mark.parametrize(
    ("part", "good"), [*((part, True) for part in ACCEPTED), *((part, False) for part in MARKED)]
)
def test_what_is_accepted_and_what_is_marked(part: str, good: bool, language: str) -> None:
    document = etree.fromstring(f"<AMPSConfig>{part}</AMPSConfig>")
    assert checker(language).validate(document) == good


def test_relax_ng_accepts_options_of_modules_of_ones_own() -> None:
    """XSD 1.0 cannot, beside options that it knows."""
    text = (
        "<AMPSConfig><Actions><Action><On><Module>mine</Module>"
        "<Options><Own>1</Own></Options></On></Action></Actions></AMPSConfig>"
    )
    assert checker("rnc").validate(etree.fromstring(text))
    assert not checker("xsd").validate(etree.fromstring(text))


def test_every_element_is_documented_in_the_schema() -> None:
    declared = etree.fromstring(schema_text("xsd").encode())
    prefix = {"xs": "http://www.w3.org/2001/XMLSchema"}
    found = declared.xpath("//xs:element[@name]", namespaces=prefix)
    assert isinstance(found, list)
    bare = [
        element.get("name")
        for element in found
        if isinstance(element, etree._Element)
        and not (
            element.findtext("xs:annotation/xs:documentation", namespaces=prefix) or ""
        ).strip()
    ]
    assert found
    assert not bare


def test_the_options_of_every_module_are_in_the_schema() -> None:
    """Editors complete, and `--explain` finds, what is there."""
    catalogue = ProgramCatalogue()
    rules = [
        (kind, rule)
        for kind in OPTIONS_OF
        for rule in (
            *catalogue.modules(kind).values(),
            *(one.uses[kind] for one in catalogue.libraries.values() if kind in one.uses),
        )
    ]
    missing = [
        f"{OPTIONS_OF[kind]}/Options/{option.name}"
        for kind, rule in rules
        for option in rule.options
        if option.name not in schema.children(f"{schema.ROOT}/{OPTIONS_OF[kind]}/Options")
    ]
    assert rules
    assert not missing


def test_the_catalogue_leads_to_the_schemas() -> None:
    """Every name of it, and Emacs's rules, lead to a file beside it."""
    for name in ("catalog.xml", "schemas.xml"):
        tree = etree.parse(SHIPPED / name)
        targets = [
            element.get("uri", "") for element in tree.iter("{*}*") if "uri" in element.attrib
        ]
        assert targets
        assert all(os.path.exists(SHIPPED / target) for target in targets)


def test_libxml2_finds_the_schema_by_its_name() -> None:
    """As xmllint and xmlcatalog do, with the catalogue that is shipped."""
    code = (
        "from lxml import etree; "
        "schema = etree.XMLSchema(etree.parse('urn:amperage:amps-config.xsd')); "
        "schema.assertValid(etree.parse('sample_configs/views.xml'))"
    )
    environment = os.environ | {"XML_CATALOG_FILES": str(SHIPPED / "catalog.xml")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=PROJECT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
