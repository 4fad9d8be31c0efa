"""Channels: events and subscriptions side by side, and the verbs on them."""

from __future__ import annotations

from tideline.channel.channel import Channel
from tideline.channel.subscription import Subscription

__all__ = ["Channel", "Subscription"]
