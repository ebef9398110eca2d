"""Configurations that belong together: what one instance expects of those that it replicates to.

Theory of operation. A configuration that is right by itself can still be wrong beside another one:
a topic that is replicated to an instance that does not record it, a queue that is none there. AMPS
finds this when two instances connect. Here the checks are plain functions over a small description
of an instance, so that they can be made before anything is started (`ampServer --verify-config`
with several files), and by two running instances, which tell each other their descriptions.

    description.py   what of an instance the others have to know; it can be sent
    selection.py     which topics a name or a regular expression stands for
    link.py          one link: what a source sends, and what becomes of it at the other end
    checks.py        the checks of a link, named as in ExcludeValidation
    routes.py        which of several instances a destination leads to
    fabric.py        several instances: every link, and what only shows when all are seen at once

Source: AMPS User Guide, Replication Configuration Validation.
"""

from config_schema.together.checks import check_link
from config_schema.together.description import InstanceDescription, describe
from config_schema.together.fabric import check_together
from config_schema.together.finding import Finding

__all__ = ["Finding", "InstanceDescription", "check_link", "check_together", "describe"]
