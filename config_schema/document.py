"""A configuration file as a tree: Include and ${VARIABLE} expanded, every node with its location.

Each file is parsed on its own. Its tree is traversed from the top: variables in texts and
attributes are replaced, an Include is replaced by the expanded tree of the file it names, and a
`ConfigNode` is built for every element on the way back up, while the file of the element is still
known. The XML tree is modified in place, so that in the end it prints as the expanded
configuration.

Limits bound the cost of any set of files: a file never includes itself, the total size of all files
stays under ConfigCycleDetectionThreshold, and elements and Include directives are counted.

Source: AMPS User Guide, Including External Files and AMPS Process Options.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lxml import etree

from config_schema import xml_file
from config_schema.problems import Location, Problems
from config_schema.units import UnitError, parse_bool, parse_size, quoted
from config_schema.variables import VariableError, Variables, has_reference
from config_schema.xml_file import ConfigFileError

MAX_DEPTH: Final = 100
"""Maximum depth of elements, counted through included files; real configurations need about 10."""

MAX_ELEMENTS: Final = 100_000
"""Maximum number of elements of a configuration; checking this many takes seconds."""

MAX_ATTRIBUTES: Final = 100
"""Maximum number of attributes of an element; only Include has an attribute with a meaning."""

MAX_TEXT: Final = 200_000
"""Maximum length of an element's text: a filter that lists ten thousand keys has half of it."""

MAX_INCLUDES: Final = 5_000
"""Maximum number of Include directives: many tiny files cost time long before they cost memory."""

DEFAULT_SIZE_LIMIT: Final = 5 << 20
"""The default of ConfigCycleDetectionThreshold, in bytes."""

_INCLUDE: Final = "Include"
_IGNORED_NAMESPACES: Final = frozenset(
    {
        "http://www.w3.org/2001/XMLSchema-instance",  # where an editor finds the schema
        "http://www.w3.org/XML/1998/namespace",
    }
)


@dataclass(frozen=True, slots=True)
class ConfigNode:
    """One element of the configuration, after Include and ${VARIABLE} have been expanded.

    Attributes:
        tag: the name of the element.
        text: its own text without the blanks around it or between its elements; "" if it has none.
        attributes: its attributes by name.
        children: its elements in file order; comments are not among them.
        location: where it was written, in the configuration file or an included one.
        synonym: the name it was written under, where that is an old name for `tag`.
        is_incomplete: true if a part is missing, because a variable of its text or attributes, or
            an Include in it, could not be expanded.
    """

    tag: str
    text: str
    attributes: Mapping[str, str]
    children: tuple["ConfigNode", ...]
    location: Location
    synonym: str | None = None
    is_incomplete: bool = False

    @property
    def written_tag(self) -> str:
        """The name of the element as it is written in the file."""
        return self.synonym or self.tag

    def find(self, tag: str) -> "ConfigNode | None":
        """Return the first child called `tag`, or None."""
        return next((child for child in self.children if child.tag == tag), None)

    def all(self, tag: str) -> "list[ConfigNode]":
        """Return every child called `tag`, in file order."""
        return [child for child in self.children if child.tag == tag]

    def value(self, tag: str, default: str | None = None) -> str | None:
        """Return the text of the first child called `tag`; `default` if there is none."""
        child = self.find(tag)
        return default if child is None else child.text


@dataclass(frozen=True, slots=True)
class ConfigDocument:
    """A configuration that has been read.

    Attributes:
        root: its outermost element.
        path: the file it was read from, as given.
        expanded_text: the whole text with Include and ${VARIABLE} replaced; it loads to the same
            tree.
        is_complete: true if all of it could be expanded; if not, it serves to find further errors.
        secrets: the values of variables in it that must be redacted, judging by their names.
    """

    root: ConfigNode
    path: str
    expanded_text: str
    is_complete: bool = True
    secrets: frozenset[str] = frozenset()

    @property
    def files(self) -> tuple[str, ...]:
        """The files that it was read from: the configuration file and the included files."""
        files = {self.path: None}
        pending = [self.root]
        while pending:
            node = pending.pop()
            files[node.location.file] = None
            pending += node.children
        return tuple(files)


def load(
    path: str, *, defines: Mapping[str, str], environ: Mapping[str, str], problems: Problems
) -> ConfigDocument | None:
    """Read a configuration file and everything it includes.

    Args:
        path: the file; an Include in it is relative to the file that holds it.
        defines: variables given with -D; they come before those of the environment.
        environ: the environment.
        problems: collects the problems, and receives the values to redact.

    Returns:
        The expanded configuration; None if a file is not XML or too large. `problems` holds the
        reason for that, or for a part that could not be expanded (`is_complete` is false then).
    """
    variables = Variables(path, defines=defines, environ=environ)
    reader = _DocumentLoader(variables, problems)
    problems.register_file(path)
    try:
        text = xml_file.read(path, path)
        file = _File(path, xml_file.parse(text, path))
        root = reader.load_root(file, len(text))
    except (ConfigFileError, _LimitReachedError) as error:
        problems.error(error.location, "", str(error))
        return None
    finally:
        problems.redact_values(variables.secrets)
    text = _to_text(file.element)
    complete = not reader.has_failed
    return ConfigDocument(root, path, text, complete, frozenset(variables.secrets))


@dataclass(frozen=True, slots=True)
class _File:
    """A parsed file, and the Include directive that named it."""

    path: str
    element: etree._Element
    included_at: Location | None = None
    included_by: "_File | None" = None

    def locate(self, element: etree._Element) -> Location:
        """Locate an element; past line 65,535 lxml only knows where the next text ends."""
        return Location(self.path, element.sourceline or 1)

    def include_chain(self) -> "list[_File]":
        """Return the files that led to this one, outermost first, this one last."""
        return [*(self.included_by.include_chain() if self.included_by else ()), self]


class _LimitReachedError(Exception):
    """The configuration exceeds a limit; `location` is where that was detected."""

    def __init__(self, location: Location, message: str) -> None:
        super().__init__(message)
        self.location = location


class _DocumentLoader:
    """The state of one load: sizes and counts so far, and whether an error was found."""

    def __init__(self, variables: Variables, problems: Problems) -> None:
        self._variables = variables
        self._problems = problems
        self._size = 0
        self._size_limit = DEFAULT_SIZE_LIMIT
        self._element_count = 0
        self._include_count = 0
        self._comment_default = False
        self.has_failed = False

    def load_root(self, file: _File, size: int) -> ConfigNode:
        """Expand the first file, with a text of `size` characters, in place.

        Raises:
            _LimitReachedError: a limit is exceeded, so that reading on is pointless.
        """
        self._read_settings(file)
        self._add_size(size, Location(file.path, 1))
        return self._walk(file.element, file, depth=1)

    def _read_settings(self, file: _File) -> None:
        for element in file.element.iterchildren("{*}*"):
            location, label = file.locate(element), _label(element)
            try:
                if _name(element) == "ConfigCycleDetectionThreshold":
                    self._size_limit = parse_size(self._expand(element.text, location, label))
                elif _name(element) == "ConfigIncludeCommentDefault":
                    self._comment_default = parse_bool(self._expand(element.text, location, label))
            except UnitError as error:
                self._error(location, label, str(error))

    def _walk(self, element: etree._Element, file: _File, depth: int) -> ConfigNode:
        location = file.locate(element)
        if depth > MAX_DEPTH:
            raise _LimitReachedError(location, f"elements are nested more than {MAX_DEPTH} deep")
        self._element_count += 1
        if self._element_count > MAX_ELEMENTS:
            excess = f"more than {MAX_ELEMENTS:,} elements"
            raise _LimitReachedError(location, f"the configuration has {excess}")
        if len(element.attrib) > MAX_ATTRIBUTES:
            raise _LimitReachedError(location, f"more than {MAX_ATTRIBUTES} attributes")
        for name, value in element.attrib.items():
            expanded = self._expand(value, location, f"{_name(element)}/@{name}")
            if expanded != value:
                element.set(name, expanded)
        children, text, is_whole = self._walk_content(element, file, depth)
        attributes = _attributes(element)
        is_whole = is_whole and not any(map(has_reference, (text, *attributes.values())))
        return ConfigNode(
            _name(element), text, attributes, tuple(children), location, is_incomplete=not is_whole
        )

    def _walk_content(
        self, element: etree._Element, file: _File, depth: int
    ) -> tuple[list[ConfigNode], str, bool]:
        """Expand the content of an element.

        Returns:
            Its child nodes; its own text, stripped; and whether all its Includes could be expanded.
        """
        location, label = file.locate(element), _label(element)
        texts = [self._expand(element.text, location, label)]
        if texts[0] != (element.text or ""):
            element.text = texts[0]
        nodes: list[ConfigNode] = []
        is_whole = True
        for child in list(element):
            tail = self._expand(child.tail, location, label)
            if tail != (child.tail or ""):
                child.tail = tail
            texts.append(tail)
            if not isinstance(child.tag, str):  # a comment or a processing instruction
                continue
            if _name(child) == _INCLUDE:
                included, is_included_whole = self._include(child, file, depth + 1)
                nodes += included
                is_whole = is_whole and is_included_whole
            else:
                nodes.append(self._walk(child, file, depth + 1))
        text = "".join(text for text in texts if not text.isspace()).strip()
        if len(text) > MAX_TEXT:
            size = f"its text has {len(text):,} characters"
            self._error(location, label, f"{size}, and no more than {MAX_TEXT:,} are read")
            is_whole = False
        return nodes, text[:MAX_TEXT], is_whole

    def _include(
        self, directive: etree._Element, file: _File, depth: int
    ) -> tuple[list[ConfigNode], bool]:
        """Replace the directive by the content of the named file.

        Returns:
            Its nodes, and whether the file and all that it includes could be read.
        """
        location, label = file.locate(directive), _label(directive)
        name = self._expand(directive.text, location, label).strip()
        wants_comment = self._wants_comment(directive, location, label)
        if not name or any(isinstance(child.tag, str) for child in directive):
            self._error(location, label, "expected the name of a file to include, and nothing else")
            return [], False
        included = None if has_reference(name) else self._open_included(name, location, label, file)
        if included is None:
            return [], False
        if depth > MAX_DEPTH:
            raise _LimitReachedError(location, f"files are included more than {MAX_DEPTH} deep")
        nodes, _, is_whole = self._walk_content(included.element, included, depth)
        _splice(directive, included.element, name if wants_comment else None)
        return nodes, is_whole

    def _wants_comment(self, directive: etree._Element, location: Location, label: str) -> bool:
        wants_comment = self._comment_default
        for name, value in _attributes(directive).items():
            if name != "comment":
                hint = "the one attribute here is comment"
                self._error(location, label, f"unknown attribute {quoted(name)}", hint)
                continue
            try:
                wants_comment = parse_bool(self._expand(value, location, "Include/@comment"))
            except UnitError as error:
                self._error(location, "Include/@comment", str(error))
        return wants_comment

    def _open_included(
        self, name: str, location: Location, label: str, file: _File
    ) -> _File | None:
        path = os.path.join(os.path.dirname(file.path), name)
        self._include_count += 1
        if self._include_count > MAX_INCLUDES:
            raise _LimitReachedError(
                location, f"more than {MAX_INCLUDES} Include directives are followed"
            )
        cycle = _cycle(path, location, file)
        if cycle:
            self._error(location, label, f"a file must not include itself: {cycle}")
            return None
        self._problems.register_file(path)
        try:
            text = xml_file.read(path, path)
            self._add_size(len(text), location)
            fragment = xml_file.parse_fragment(text, path)
        except ConfigFileError as error:
            if error.location.line:  # the file exists; the error is inside
                self._error(error.location, "", str(error))
            else:
                self._error(location, label, f"{path} {error}")
            return None
        if not _holds_only_elements(fragment):
            expected = "expected one or more XML elements, and no text outside of them"
            self._error(Location(path, 1), "", f"the file cannot be included: {expected}")
            return None
        return _File(path, fragment, location, file)

    def _expand(self, text: str | None, location: Location, label: str) -> str:
        text = text or ""
        try:
            expanded = self._variables.expand(text)
        except VariableError as error:
            self._error(location, label, str(error))
            return text
        self._add_size(len(expanded) - len(text), location)
        return expanded

    def _add_size(self, characters: int, location: Location) -> None:
        self._size += characters
        if self._size > self._size_limit:
            raise _LimitReachedError(
                location,
                f"the configuration is larger than {self._size_limit:,} bytes here, with Include "
                "and variables replaced; ConfigCycleDetectionThreshold sets this limit",
            )

    def _error(self, location: Location, label: str, message: str, hint: str | None = None) -> None:
        self.has_failed = True
        self._problems.error(location, label, message, hint)


def _holds_only_elements(fragment: etree._Element) -> bool:
    texts = [fragment.text, *(child.tail for child in fragment)]
    has_element = any(isinstance(child.tag, str) for child in fragment)
    return has_element and not any(text and text.strip() for text in texts)


def _splice(directive: etree._Element, fragment: etree._Element, shown: str | None) -> None:
    """Replace an Include by the file's content, between comments with the name `shown` if given."""
    parent = directive.getparent()
    if parent is None:
        raise AssertionError("the outermost element is walked, never included")
    content = list(fragment)
    if shown is not None:
        name = re.sub("-(?=-)", "- ", shown)  # a comment must not hold two hyphens in a row
        start = etree.Comment(f" Start <Include>{name}</Include> ")
        start.tail = content[-1].tail = _indentation(directive, parent)
        content = [start, *content, etree.Comment(f" End <Include>{name}</Include> ")]
    content[-1].tail = directive.tail
    position = parent.index(directive)
    parent[position : position + 1] = content


def _indentation(element: etree._Element, parent: etree._Element) -> str:
    previous = element.getprevious()
    before = parent.text if previous is None else previous.tail
    return before if before and before.isspace() else "\n"


def _cycle(path: str, location: Location, file: _File) -> str:
    """Describe how including `path` leads back to a file that is being read; "" if it does not."""
    chain = file.include_chain()
    target = os.path.realpath(path)
    start = next((i for i, f in enumerate(chain) if os.path.realpath(f.path) == target), None)
    if start is None:
        return ""
    steps = [f"{step.included_at} includes {step.path}" for step in chain[start + 1 :]]
    return ", ".join([*steps, f"{location} includes {path}"])


def _name(element: etree._Element) -> str:
    """Return the name of an element as written; a default namespace (xmlns="...") is ignored."""
    local = etree.QName(element).localname
    return f"{element.prefix}:{local}" if element.prefix else local


def _label(element: etree._Element) -> str:
    parent = element.getparent()
    if parent is None or parent.tag == xml_file.FRAGMENT:
        return _name(element)
    return f"{_name(parent)}/{_name(element)}"


def _attributes(element: etree._Element) -> dict[str, str]:
    prefixes = {uri: prefix for prefix, uri in element.nsmap.items()}
    attributes = {}
    for key, value in element.attrib.items():
        name = etree.QName(key)
        if name.namespace is None:
            attributes[name.localname] = value
        elif name.namespace not in _IGNORED_NAMESPACES:
            attributes[f"{prefixes[name.namespace]}:{name.localname}"] = value
    return attributes


def _to_text(root: etree._Element) -> str:
    around = [*reversed(list(root.itersiblings(preceding=True))), root, *root.itersiblings()]
    parts = [etree.tostring(part, encoding="unicode", with_tail=False) for part in around]
    return "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', *parts, ""])
