"""amps-action-on-unsubscribe: a subscription has ended."""

from actions.subscriptions import OnSubscription


class OnUnsubscribe(OnSubscription):
    """Runs when a client unsubscribes or disconnects."""

    events = ("unsubscribe",)
