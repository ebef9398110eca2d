"""Cross-checks of configurations: the requirements of an instance on its replication peers.

Theory of operation. A configuration that is valid by itself can still be wrong beside another one:
a topic that is replicated to an instance that does not record it, a queue that is none there. AMPS
detects this when two instances connect. Here the checks are plain functions over a small
description of an instance, so that they can run before anything is started
(`ampServer --verify-config` with several files), and in two running instances, which exchange
their descriptions.

    description.py   the description of an instance for its peers; it can be sent
    link.py          one link: the topics that a source sends, and their treatment at the other end
    checks.py        the checks of a link, named as in ExcludeValidation
    routes.py        the instances that a destination leads to
    fabric.py        several instances: every link, and problems that no single link shows

Source: AMPS User Guide, Replication Configuration Validation.
"""

from config_schema.topology.checks import check_link
from config_schema.topology.description import InstanceDescription, describe
from config_schema.topology.fabric import check_topology
from config_schema.topology.findings import TopologyFinding

__all__ = ["InstanceDescription", "TopologyFinding", "check_link", "check_topology", "describe"]
