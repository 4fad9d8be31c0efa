"""A channel on a server, used in an event loop: the verbs of client/channel.py, awaited."""

from __future__ import annotations

from tideline.aclient.subscription import AsyncRemoteSubscription
from tideline.client.channel import ChannelVerbs

__all__ = ["AsyncRemoteChannel"]


class AsyncRemoteChannel(ChannelVerbs[AsyncRemoteSubscription]):
    """Events and subscriptions side by side, on a server. Made by `AsyncRemote.channel`."""

    def __repr__(self) -> str:
        return f"AsyncRemoteChannel(name={self.name!r}, url={self._http.url!r})"
