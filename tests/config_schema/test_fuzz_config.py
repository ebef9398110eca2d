"""Whatever the bytes, the texts, the trees or the files: only located problems come out."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from config_schema import schema
from config_schema.document import ConfigNode, load
from config_schema.problems import Problems
from config_schema.validate import MAX_VIOLATIONS, validate
from tests.support.chances import examples

SEED = """<?xml version="1.0" encoding="UTF-8"?>
<!-- a configuration that uses a bit of everything -->
<AMPSConfig>
  <Name>fuzz-${VAR}</Name>
  <ConfigIncludeCommentDefault>true</ConfigIncludeCommentDefault>
  <Admin><InetAddr>8085</InetAddr><FileName>./stats.db</FileName><Interval>10s</Interval></Admin>
  <Transports><Transport><Name>t</Name><Type>tcp</Type><InetAddr>[::]:9007</InetAddr>
    <ReuseAddr>true</ReuseAddr><Protocol>amps</Protocol></Transport></Transports>
  <SOW><Topic><Topic>orders</Topic><MessageType>json</MessageType><Key>/id</Key>
    <Expiration>1d</Expiration></Topic>
    <View><Name>v</Name><MessageType>json</MessageType><UnderlyingTopic>orders</UnderlyingTopic>
      <Projection><Field><![CDATA[SUM(/a) AS /a]]></Field></Projection>
      <Grouping><Field>/b</Field></Grouping></View></SOW>
  <Actions><Action><On><Module>amps-action-on-startup</Module></On>
    <Do><Module>amps-action-do-echo</Module><Options><Any>x</Any></Options></Do></Action></Actions>
</AMPSConfig>
"""
SNIPPETS = [
    *("<", ">", "&", "${VAR}", "${NONE}", "${", "-->", "<!--", "--", "]]>", "<![CDATA[", "\0"),
    *("<Include>main.xml</Include>", "<Include comment='true'>", "</AMPSConfig>", "<?x ?>", "\r"),
    *("<!DOCTYPE a [<!ENTITY b 'c'>]>", "&b;", "&#0;", "&#xD800;", "xmlns='u'", "p:", "\ufffe"),
    *("<ConfigCycleDetectionThreshold>1</ConfigCycleDetectionThreshold>", "encoding='utf-16'"),
]
NAMES = sorted({doc.name for doc in schema.elements().values()})
VARIABLES = {"VAR": "a value", "MARKUP": "</Name>&<!--"}
TEXTS = st.text(max_size=12) | st.sampled_from(["", "1", "10s", "tcp", "json", "true", "/id", "t"])


def run(files: Mapping[str, bytes]) -> None:
    """Load main.xml from `files`; the answer must be a sound document or a located error."""
    with TemporaryDirectory() as directory:
        for name, content in files.items():
            (Path(directory) / name).write_bytes(content)
        main = Path(directory) / "main.xml"
        problems = Problems()
        document = load(str(main), defines=VARIABLES, environ={}, problems=problems)
        assert (document is None or not document.is_complete) == problems.has_errors
        if document is not None:
            validate(document, problems)
        if document is not None and document.is_complete:
            main.write_text(document.expanded_text, encoding="utf-8")
            again = load(str(main), defines={}, environ={}, problems=Problems())
            assert again is not None
            assert again.expanded_text == document.expanded_text
            assert shape(again.root) == shape(document.root)
        for problem in problems:
            lines = files[Path(problem.location.file).name].count(b"\n") + 1
            assert 0 <= problem.location.line <= lines
            assert "\n" not in str(problem)
            assert "Xsd" not in str(problem)
            assert "0x7f" not in str(problem)
        assert len(problems) <= 2 * MAX_VIOLATIONS


def shape(node: ConfigNode) -> object:
    return node.tag, node.text, dict(node.attributes), [shape(child) for child in node.children]


@settings(max_examples=examples(200), deadline=None)
@given(st.binary(max_size=300))
def test_random_bytes(content: bytes) -> None:
    run({"main.xml": content})


@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, len(SEED)),
            st.integers(0, 30),
            st.sampled_from(SNIPPETS) | st.sampled_from(NAMES) | st.text(max_size=3),
        ),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from(["utf-8", "utf-16", "utf-8-sig"]),
)
def test_mutated_configurations(edits: list[tuple[int, int, str]], encoding: str) -> None:
    text = SEED
    for start, length, inserted in edits:
        text = text[:start] + inserted + text[start + length :]
    run({"main.xml": text.encode(encoding, errors="replace")})


def elements() -> st.SearchStrategy[str]:
    names = st.sampled_from(NAMES) | st.sampled_from(["Include", "Zebra", "p:Name", "amps"])
    text = TEXTS.map(escaped)

    def parent(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        content = st.lists(inner | text, max_size=5).map("".join)
        attribute = st.sampled_from(["", " comment='true'", " x='1'", " xmlns:p='u'"])
        return st.builds("<{0}{1}>{2}</{0}>".format, names, attribute, content)

    return st.recursive(st.builds("<{0}>{1}</{0}>".format, names, text), parent, max_leaves=25)


def escaped(text: str) -> str:
    return "".join(f"&#{ord(c)};" if c in "<&>\r" else c for c in text if c.isprintable())


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(elements(), max_size=6))
def test_random_trees(trees: list[str]) -> None:
    text = f"<AMPSConfig xmlns:p='urn:p'>\n<Name>n</Name>{''.join(trees)}</AMPSConfig>"
    run({"main.xml": text.encode("utf-8", errors="replace")})


FILES = ["main.xml", "b.xml", "c.xml", "d.xml"]


@settings(max_examples=examples(200), deadline=None)
@given(
    st.fixed_dictionaries(
        {
            name: st.lists(
                st.sampled_from([*FILES, "none.xml", "${VAR}", "."]).map(
                    "<Include comment='true'>{}</Include>".format
                )
                | elements(),
                max_size=4,
            )
            for name in FILES
        }
    )
)
def test_random_include_graphs(graph: dict[str, list[str]]) -> None:
    files = {name: "\n".join(parts).encode() for name, parts in graph.items()}
    run({**files, "main.xml": b"<AMPSConfig xmlns:p='u'>" + files["main.xml"] + b"</AMPSConfig>"})
