"""Counting what a server does, and saying it as Prometheus reads it.

Counters are touched on the event loop; `render` may run beside it and reads what is there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterable
from typing import Any

__all__ = ["BUCKETS_S", "Metrics"]

BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)

# Of each channel: the field of ChannelStats, the metric, its kind, what it says.
_OF_CHANNELS = [
    ("events", "events", "gauge", "Live events."),
    ("subscriptions", "subscriptions", "gauge", "Live subscriptions."),
    ("answers", "answers_total", "counter", "Answers given."),
    ("windows", "windows", "gauge", "Windows in memory."),
    ("components", "components", "gauge", "Sealed components on disk."),
    ("bytes_memory", "memory_bytes", "gauge", "Memory of live data."),
    ("bytes_disk", "disk_bytes", "gauge", "Bytes of components."),
    ("bytes_log", "log_bytes", "gauge", "Bytes of the log."),
    ("dropped", "dropped_total", "counter", "Windows and components dropped whole."),
    ("late", "late_total", "counter", "Rows older than what the channel had seen."),
]


class Metrics:
    """The counters of one server."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self.delivered = 0
        self.slow = 0
        self.live_changes = 0
        self.live_resets = 0
        self.latency = [0] * (len(BUCKETS_S) + 1)
        self.latency_sum_s = 0.0
        self.recent: deque[float] = deque(maxlen=4096)

    def sent(self, seconds: float) -> None:
        """A live answer was handed to a socket so long after its event was stored."""
        self.delivered += 1
        self.latency[bisect_left(BUCKETS_S, seconds)] += 1
        self.latency_sum_s += seconds
        self.recent.append(seconds)

    def render(self, hub: Any) -> str:
        """Everything, in Prometheus' text format."""
        lines: list[str] = []

        def family(name: str, kind: str, text: str, samples: Iterable[tuple[str, Any]]) -> None:
            lines.append(f"# HELP tideline_{name} {text}")
            lines.append(f"# TYPE tideline_{name} {kind}")
            lines.extend(f"tideline_{name}{labels} {value}" for labels, value in samples)

        channels = [(name, channel) for name, channel in sorted(hub.db._open.items())]
        stats = [(_labels(channel=name), channel.stats()) for name, channel in channels]
        for field, name, kind, text in _OF_CHANNELS:
            family(name, kind, text, [(label, getattr(found, field)) for label, found in stats])
        stores = [(_labels(channel=name), c.core.engine.store) for name, c in channels]
        family(
            "log_lag_bytes", "gauge", "Bytes of the log that recovery would read.",
            [(label, store.log.size_from(store.first_log)) for label, store in stores],
        )  # fmt: skip
        if hub.cluster is not None:
            self._cluster(hub.cluster, family)
        waiting = [connection.waiting for connection in list(hub.connections)]
        family("connections", "gauge", "Open WebSockets and event streams.", [("", len(waiting))])
        family("outbox_messages", "gauge", "Messages that wait to be sent.", [("", sum(waiting))])
        family(
            "outbox_longest", "gauge", "Messages that wait in the longest outbox.",
            [("", max(waiting, default=0))],
        )  # fmt: skip
        family("slow_total", "counter", "Readers too slow, disconnected.", [("", self.slow)])
        family(
            "requests_total", "counter", "Requests answered.",
            [(_labels(method=m, path=p, status=s), n) for (m, p, s), n in
             sorted(self.requests.items())],
        )  # fmt: skip
        family("delivered_total", "counter", "Live answers sent.", [("", self.delivered)])
        queries = [
            (_labels(collection=name), hub.desks.get(one), one.hub)
            for name, one in sorted(hub.db._collections.items())
        ]
        family(
            "live_queries", "gauge", "Live queries on connections.",
            [(label, 0 if desk is None else desk.watches) for label, desk, _ in queries],
        )  # fmt: skip
        family(
            "standing_queries", "gauge", "Different live queries that stand.",
            [(label, live.count) for label, _, live in queries],
        )  # fmt: skip
        family(
            "live_renewals_total", "counter", "Live queries that were asked anew.",
            [(label, live.renewals) for label, _, live in queries],
        )  # fmt: skip
        family("live_changes_total", "counter", "Changes of live queries told.",
               [("", self.live_changes)])  # fmt: skip
        family("live_resets_total", "counter", "Live queries told anew to slow readers.",
               [("", self.live_resets)])  # fmt: skip
        family(
            "delivery_seconds",
            "histogram",
            "From storing an event to handing it to a socket.",
            self._histogram(),
        )
        return "\n".join(lines) + "\n"

    def _cluster(self, machine: Any, family: Any) -> None:
        """Of a node: its role, how far it is, and on the leader how far the others are."""
        said = machine.node.status()
        family("cluster_leads", "gauge", "Whether this node leads.", [("", int(machine.leads))])
        family("cluster_has_leader", "gauge", "Whether a leader is known here.",
               [("", int(said["leader"] is not None))])  # fmt: skip
        family("cluster_decided_index", "gauge", "How far the nodes have agreed, as known here.",
               [("", said["decided"])])  # fmt: skip
        family("cluster_applied_index", "gauge", "How far it is in the database of this node.",
               [("", said["applied"])])  # fmt: skip
        if said["stale_s"] is not None:
            family("cluster_stale_seconds", "gauge", "How old reads here may be.",
                   [("", round(said["stale_s"], 3))])  # fmt: skip
        behind = [
            (_labels(node=one["node"]), one["behind"])
            for one in said["nodes"] if one["behind"] is not None
        ]  # fmt: skip
        family("cluster_behind_entries", "gauge", "Entries that a node lacks, as the leader knows.",
               behind)  # fmt: skip

    def _histogram(self) -> list[tuple[str, Any]]:
        total, samples = 0, []
        for limit, count in zip([*BUCKETS_S, "+Inf"], self.latency, strict=True):
            total += count
            samples.append((f'_bucket{{le="{limit}"}}', total))
        return [*samples, ("_sum", round(self.latency_sum_s, 6)), ("_count", total)]


def _labels(**values: Any) -> str:
    """Labels, with what would break the line escaped.

    >>> print(_labels(channel='a"b'))
    {channel="a\\"b"}
    """
    texts = (
        (name, str(value).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n"))
        for name, value in values.items()
    )
    return "{" + ",".join(f'{name}="{text}"' for name, text in texts) + "}"
