"""Channels: events and subscriptions side by side, and the verbs on them.

`Channel` needs the compiled kernels and is loaded when it is first asked for: the client
(client/) shares the subscription's waiting and has no use for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tideline.channel.subscription import Subscription

if TYPE_CHECKING:
    from tideline.channel.channel import Channel

__all__ = ["Channel", "Subscription"]


def __getattr__(name: str) -> Any:
    if name == "Channel":
        from tideline.channel.channel import Channel

        return Channel
    raise AttributeError(f"module 'tideline.channel' has no attribute {name!r}")
