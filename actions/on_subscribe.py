"""amps-action-on-subscribe: a client has entered a subscription."""

from actions.subscriptions import OnSubscription


class OnSubscribe(OnSubscription):
    """Runs when a client subscribes, by any command."""

    events = ("subscribe", "delta_subscribe", "sow_and_subscribe", "sow_and_delta_subscribe")
