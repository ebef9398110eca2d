"""amps-action-on-admin: a request to the admin interface."""

from typing import ClassVar

from actions.without_subject import TriggerWithoutSubject


class OnAdmin(TriggerWithoutSubject):
    """Runs on a request for its path below /amps/administrator/actions."""

    subject: ClassVar[str] = "the admin interface"
