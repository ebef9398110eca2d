"""From the validated document to the description of an instance, with all cross-checks.

The structure has been validated before: which elements, how often, with which kind of text. Here
each section is read into typed values and checked against the others, against the program (modules,
expressions, schedules) and against the rules that no schema can express. All errors are reported in
one run, also if the structure had errors.
"""

from dataclasses import replace

from config_schema.catalogue import Catalogue
from config_schema.compile.actions import compile_actions
from config_schema.compile.addresses import check_addresses, check_exposure
from config_schema.compile.instance import (
    compile_admin,
    compile_externals,
    compile_name,
    compile_sql,
    compile_tuning,
    mini_dump_directory,
)
from config_schema.compile.journal import compile_transaction_log
from config_schema.compile.logs import compile_logging
from config_schema.compile.lookups import check_lookups
from config_schema.compile.message_types import compile_message_types
from config_schema.compile.modules import compile_functions, compile_modules
from config_schema.compile.reader import INTERVAL, CompileReport, ElementReader
from config_schema.compile.replication import compile_replication
from config_schema.compile.scope import Scope
from config_schema.compile.sow import compile_sow
from config_schema.compile.transports import (
    compile_authentication,
    compile_entitlement,
    compile_limits,
    compile_protocols,
    compile_transports,
)
from config_schema.document import ConfigNode
from config_schema.problems import Problems
from config_schema.schema import ROOT
from config_schema.spec import InstanceSpec
from config_schema.spec.common import FILE_MODE
from config_schema.validate import validates

__all__ = ["Catalogue", "compile_config"]


def compile_config(
    root: ConfigNode, catalogue: Catalogue, problems: Problems
) -> InstanceSpec | None:
    """Compile a configuration.

    Args:
        root: the tree in canonical names, as `validate` returns it.
        catalogue: the modules and checks of the program.
        problems: collects errors; those of the earlier stages are not repeated.

    Returns:
        The description of the instance; None if there are errors, of this or an earlier stage.
    """
    if root.tag != ROOT:
        return None  # this has been reported
    if _incomplete(root):  # a referenced name may be in the missing part
        problems.info(
            root,
            ROOT,
            "only the structure has been checked: topics, views, modules and others may refer to "
            "definitions in the missing part",
            "correct the other errors, and check again",
        )
        return None
    report = CompileReport(problems, is_lenient=not validates(root))
    reader = ElementReader(root, root.tag, report, catalogue)
    spec = _instance(reader)
    return None if problems.has_errors else spec


def _incomplete(node: ConfigNode) -> bool:
    return node.is_incomplete or any(map(_incomplete, node.children))


def _instance(root: ElementReader) -> InstanceSpec:
    # Later sections use the names of the earlier ones, so this order is not that of the fields.
    scope = Scope(regex_topics=root.flag("RegexTopicSupport", default=True))
    modules = compile_modules(root, scope)
    message_types = compile_message_types(root, scope)
    functions = compile_functions(root, scope)
    root = replace(root, catalogue=root.catalogue.with_functions(functions, modules))
    protocols = compile_protocols(root, scope)
    transports = compile_transports(root, scope)
    admin = compile_admin(root, scope)
    check_addresses(transports, admin, root.report)
    authentication = compile_authentication(root, scope)
    check_exposure(transports, admin, authentication, root.report)
    transaction_log = compile_transaction_log(root, scope)
    sow = compile_sow(root, scope)
    check_lookups(root, scope)
    replication = compile_replication(root, scope)
    actions = compile_actions(root, scope)
    name = compile_name(root)
    return InstanceSpec(
        name=name,
        group=root.text("Group") or name,
        process_name=root.text("ProcessName"),
        description=root.text("Description"),
        environment=root.text("Environment"),
        mini_dump_directory=mini_dump_directory(root),
        mini_dump_file_mask=root.mask("MiniDumpFileMask") or FILE_MODE,
        sow_stats_interval=root.quantity("SOWStatsInterval", INTERVAL, minimum="1ns"),
        regex_topic_support=scope.regex_topics,
        config_validation=root.flag("ConfigValidation", default=True),
        limits=compile_limits(root),
        authentication=authentication,
        entitlement=compile_entitlement(root, scope),
        modules=modules,
        message_types=message_types,
        user_defined_functions=functions,
        protocols=protocols,
        transports=transports,
        logging=compile_logging(root),
        sow=sow,
        transaction_log=transaction_log,
        replication=replication,
        actions=actions,
        admin=admin,
        tuning=compile_tuning(root, replication),
        sql=compile_sql(root),
        externals=compile_externals(root),
        location=root.location,
    )
