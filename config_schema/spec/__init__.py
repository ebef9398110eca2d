"""The typed, frozen description of one instance: the meaning of a configuration.

Nothing here runs anything. Names are the configuration's element names in snake case; intervals
are integers in nanoseconds, sizes integers in bytes, and every part knows the file and line it came
from.
"""

from config_schema.spec.actions import ActionSpec, ActionStep
from config_schema.spec.common import (
    InetAddr,
    ModuleUse,
    Option,
    Options,
    SlowClientLimits,
    TlsSpec,
    TopicRef,
)
from config_schema.spec.instance import (
    AdminSpec,
    ExternalsSpec,
    InstanceSpec,
    OpenTelemetrySpec,
    SqlSpec,
    TuningSpec,
)
from config_schema.spec.journal import (
    DestinationSpec,
    JournaledTopicSpec,
    KnownBy,
    OutgoingTransportSpec,
    ReplicatedTopicSpec,
    TransactionLogSpec,
    is_known,
)
from config_schema.spec.logs import LogProtocol, LogTargetSpec
from config_schema.spec.modules import FunctionSpec, MessageTypeSpec, ModuleSpec
from config_schema.spec.sow import (
    ConflatedTopicSpec,
    HistorySpec,
    JoinField,
    JoinSpec,
    QueueSpec,
    SowSpec,
    TopicSpec,
    ViewSpec,
)
from config_schema.spec.transports import ProtocolSpec, TransportSpec, TransportType

__all__ = [
    "ActionSpec",
    "ActionStep",
    "AdminSpec",
    "ConflatedTopicSpec",
    "DestinationSpec",
    "ExternalsSpec",
    "FunctionSpec",
    "HistorySpec",
    "InetAddr",
    "InstanceSpec",
    "JoinField",
    "JoinSpec",
    "JournaledTopicSpec",
    "KnownBy",
    "LogProtocol",
    "LogTargetSpec",
    "MessageTypeSpec",
    "ModuleSpec",
    "ModuleUse",
    "OpenTelemetrySpec",
    "Option",
    "Options",
    "OutgoingTransportSpec",
    "ProtocolSpec",
    "QueueSpec",
    "ReplicatedTopicSpec",
    "SlowClientLimits",
    "SowSpec",
    "SqlSpec",
    "TlsSpec",
    "TopicRef",
    "TopicSpec",
    "TransactionLogSpec",
    "TransportSpec",
    "TransportType",
    "TuningSpec",
    "ViewSpec",
    "is_known",
]
