"""Loaded modules, the places that put a module to work, and user-defined functions.

Source: AMPS User Guide, Configuring Modules.
"""

import posixpath
from collections.abc import Mapping
from typing import Final

from config_schema.catalogue import LibraryRule, ModuleKind, ModuleRule
from config_schema.compile.options import check_options, read_options
from config_schema.compile.reader import COUNT, ElementReader
from config_schema.compile.scope import Scope
from config_schema.spec import FunctionSpec, ModuleSpec, ModuleUse, Options
from config_schema.standard_modules import LIBRARIES_OF_AMPS, STANDARD_MODULES
from config_schema.suggest import nearest
from config_schema.units import quoted

_SECURITY: Final = (ModuleKind.AUTHENTICATION, ModuleKind.ENTITLEMENT, ModuleKind.AUTHENTICATOR)
_SAME_VERB: Final = {"delete": "remove", "purge": "remove", "prune": "remove", "old": "", "do": ""}
"""Words of module names that mean the same, or nothing."""

_SLIP_OF_THE_PEN: Final = 0.9
"""Minimum similarity of a library's name to one of AMPS: all of them begin and end the same."""


def compile_modules(root: ElementReader, scope: Scope) -> tuple[ModuleSpec, ...]:
    """Compile the Modules section; a library must be one that the program stands in for."""
    modules = []
    for reader in root.section_children("Modules", "Module"):
        name = reader.required("Name")
        library = reader.required("Library")
        if name in scope.modules:
            reader.error(f"module {quoted(name)} is defined twice", tag="Name")
        rule = _library_rule(reader, library)
        scope.modules[name] = rule
        options = read_options(reader)
        if rule is not None:
            loading = ModuleRule(rule.name, "", rule.options, open_options=rule.open_options)
            check_options(reader, loading, scope)
        scope.options_of_modules[name] = options
        modules.append(ModuleSpec(name, library, options, reader.location))
    return tuple(modules)


def _library_rule(reader: ElementReader, library: str) -> LibraryRule | None:
    if not library:
        return None
    base = posixpath.basename(library).removesuffix(".so") + ".so"
    libraries = reader.catalogue.libraries
    if base in libraries:
        return libraries[base]
    if base in LIBRARIES_OF_AMPS:
        reader.error(
            f"library {quoted(library)} of AMPS is not supported",
            "remove this module and the elements that use it",
            tag="Library",
        )
        return None
    suggestion = nearest(base, [*libraries, *LIBRARIES_OF_AMPS], _SLIP_OF_THE_PEN)
    examined = (
        f"did you mean {suggestion}?" if suggestion else reader.catalogue.examine_library(library)
    )
    if isinstance(examined, LibraryRule):
        return examined
    reader.error(f"library {quoted(library)} is not available", examined, tag="Library")
    return None


def compile_use(reader: ElementReader | None, kind: ModuleKind, scope: Scope) -> ModuleUse | None:
    """Compile an element that puts a module to work; None if the element is absent."""
    if reader is None:
        return None
    name = reader.required("Module")
    rule = find_module(reader, name, kind, scope)
    if rule is not None:
        check_options(reader, rule, scope, _inherited(name, kind, scope))
    return ModuleUse(name, read_options(reader), reader.location)


def _inherited(name: str, kind: ModuleKind, scope: Scope) -> Options:
    """Return the options that a use inherits from the loading of its module.

    Source: AMPS User Guide, RESTful Authentication and Entitlements; OAuth Authentication.
    """
    if kind not in (ModuleKind.AUTHENTICATION, ModuleKind.ENTITLEMENT):
        return Options()
    return scope.options_of_modules.get(name, Options())


def built_in(reader: ElementReader, kind: ModuleKind) -> Mapping[str, ModuleRule]:
    """Return the modules that a configuration may use without loading them."""
    return {**STANDARD_MODULES.get(kind, {}), **reader.catalogue.modules(kind)}


def find_module(
    reader: ElementReader, name: str, kind: ModuleKind, scope: Scope
) -> ModuleRule | None:
    """Return the rule of the module that an element names; report it if there is none."""
    builtin = built_in(reader, kind)
    if name in builtin:
        _check_loaded(reader, builtin[name], scope)
        return builtin[name]
    if name in scope.modules:
        library = scope.modules[name]
        if library is not None and kind not in library.uses:
            uses = " or ".join(use.value for use in library.uses)
            reader.error(
                f"module {quoted(name)} ({library.name}) cannot be used for {kind.value}",
                f"it is made for {uses}" if uses else "it is enough to load it",
                tag="Module",
            )
            return None
        entry_point = library.entry_points.get(kind) if library is not None else None
        if library is not None and entry_point is not None and library.lacks_symbol(entry_point):
            reader.error(
                f"module {quoted(name)} ({library.name}) has no function {entry_point}, "
                f"which makes a {kind.value} of it",
                tag="Module",
            )
            return None
        return library.uses[kind] if library is not None else None
    if name:
        reader.error(_unknown(name, kind), _suggestion(name, kind, reader, scope), tag="Module")
    return None


def _check_loaded(reader: ElementReader, rule: ModuleRule, scope: Scope) -> None:
    """Report a module if the configuration does not load its library."""
    loaded = (library.name for library in scope.modules.values() if library is not None)
    if rule.library and rule.library not in loaded:
        reader.error(
            f"module {quoted(rule.name)} comes with {rule.library}, which is not loaded",
            f"add a Module with <Library>{rule.library}</Library> to Modules",
            tag="Module",
        )


def _unknown(name: str, kind: ModuleKind) -> str:
    if kind in _SECURITY:
        return (
            f"{kind.value} module {quoted(name)} does not exist here, "
            "and the instance does not start without its security"
        )
    return f"there is no module {quoted(name)} for {kind.value}"


def _suggestion(name: str, kind: ModuleKind, reader: ElementReader, scope: Scope) -> str:
    builtin = built_in(reader, kind)
    loaded = [known for known, rule in scope.modules.items() if rule and kind in rule.uses]
    known = [*builtin, *loaded]
    suggestion = nearest(name, known) if kind not in (ModuleKind.ON, ModuleKind.DO) else None
    likely = [suggestion] if suggestion else _alike(name, known)
    if likely:
        return f"did you mean {' or '.join(likely)}?"
    elsewhere = next((other for other in ModuleKind if name in built_in(reader, other)), None)
    if elsewhere:
        return f"it belongs in {elsewhere.value}"
    if kind in (ModuleKind.ON, ModuleKind.DO):
        return f"use one of AMPS; their names begin with amps-action-{kind.value.lower()}-"
    return "load it in Modules" + (f", or use {', '.join(known)}" if known else "")


def _alike(name: str, known: list[str]) -> list[str]:
    """Return the one or two names that share most words with `name`.

    The names of action modules have a long common beginning, which makes any two of them look
    alike letter by letter; their words distinguish them.
    """
    words = _words(name)
    shared = {candidate: len(words & _words(candidate)) for candidate in known}
    best = max(shared.values(), default=0)
    if best:
        candidates = [candidate for candidate, count in shared.items() if count == best]
        if len(candidates) > 1:
            candidates.sort(key=lambda candidate: len(_words(candidate) - words))
            candidates = [
                c
                for c in candidates
                if len(_words(c) - words) == len(_words(candidates[0]) - words)
            ]
        if len(candidates) <= 2:
            return candidates
    ending = nearest(_ending(name), [_ending(candidate) for candidate in known])
    return [candidate for candidate in known if ending and _ending(candidate) == ending][:1]


def _words(name: str) -> set[str]:
    words = {_SAME_VERB.get(word, word) for word in _ending(name).split("-")}
    return words - {""}


def _ending(name: str) -> str:
    """Return the part of an action module's name that distinguishes it from the others."""
    for prefix in ("amps-action-on-", "amps-action-do-", "amps-action-if-", "amps-action-"):
        name = name.removeprefix(prefix)
    return name


def compile_functions(root: ElementReader, scope: Scope) -> tuple[FunctionSpec, ...]:
    """Compile user-defined functions (AMPS User Guide, AMPS Process Options)."""
    functions: dict[str, FunctionSpec] = {}
    for reader in root.section_children("UserDefinedFunctions", "Function"):
        name = reader.required("Name")
        module = reader.required("Module")
        if name.upper() in functions:
            reader.error(
                f"function {quoted(name)} is defined twice; case does not matter", tag="Name"
            )
        problem = reader.catalogue.check_function_name(name) if name else None
        if problem is not None:
            reader.error(problem, tag="Name")
        if find_module(reader, module, ModuleKind.FUNCTIONS, scope) is not None:
            _check_symbol(reader, scope.modules.get(module))
        functions[name.upper()] = FunctionSpec(
            name=name,
            module=module,
            symbol=reader.required("Symbol"),
            parameter_count=reader.quantity("ParameterCount", COUNT),
            location=reader.location,
        )
    return tuple(functions.values())


def _check_symbol(reader: ElementReader, library: LibraryRule | None) -> None:
    symbol = reader.text("Symbol")
    if library is None or not symbol or not library.lacks_symbol(symbol):
        return
    suggestion = nearest(symbol, library.symbols or ())
    reader.error(
        f"{library.name} has no function {quoted(symbol)}",
        f"did you mean {suggestion}?" if suggestion else None,
        tag="Symbol",
    )
