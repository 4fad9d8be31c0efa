"""The policies a collection can be given, and what they are made of.

    none                                     every component stays
    constant            k                    all into one when there are k
    prefix              max_bytes, max_count runs of small components
    correlated-prefix   the same             for the primary; indexes merge what it has merged
    leveled             first_bytes, ratio, max_count, piece_bytes
                                             levels of components that do not overlap
                        partition, pick      the same by space, of indexes on places

Pure functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tideline.errors import InvalidRequest
from tideline.lsm.component import ComponentInfo
from tideline.lsm.policy import Constant, Correlated, Leveled, NoMerge, Policy, Prefix, Spatial

__all__ = ["POLICIES", "SETTINGS", "policy_of"]

SETTINGS: dict[str, dict[str, Any]] = {
    "none": {},
    "constant": {"k": 4},
    "prefix": {"max_bytes": 1 << 30, "max_count": 5},
    "correlated-prefix": {"max_bytes": 1 << 30, "max_count": 5},
    "leveled": {
        "first_bytes": 128 << 20,
        "ratio": 10,
        "max_count": 4,
        "piece_bytes": 32 << 20,
        "partition": "str",
        "pick": "best",
    },
}
"""The policies, with their settings and what these are when nobody says otherwise."""

POLICIES = tuple(SETTINGS)


def policy_of(
    given: str | Mapping[str, Any], primary: Callable[[], Sequence[ComponentInfo]] | None,
    *, by: str | None = None, box: str | None = None,
) -> Policy:  # fmt: skip
    """The policy of the primary (`primary` is None) or of an index (its components).

    `by` names the filter that components can be cut apart by, `box` one that is a box of places.

    >>> policy_of({"name": "prefix", "max_count": 3}, None).max_count
    3
    >>> policy_of("prefix", None).max_count
    5
    """
    settings = {"name": given} if isinstance(given, str) else dict(given)
    name = settings.pop("name", None)
    if name not in POLICIES:
        raise InvalidRequest("no such policy", policy=name, policies=POLICIES)
    unknown = settings.keys() - SETTINGS[name].keys()
    if unknown:
        raise InvalidRequest("no such setting of a policy", policy=name, setting=min(unknown))
    settings = {**SETTINGS[name], **settings}
    if name == "correlated-prefix" and primary is not None:
        return Correlated(primary, "seq")
    kinds: dict[str, Callable[..., Policy]] = {
        "none": NoMerge, "constant": Constant, "prefix": Prefix,
        "correlated-prefix": Prefix,
    }  # fmt: skip
    if name == "leveled":
        spatial = Spatial(**settings, by=box or "box")  # says what is wrong with its settings
        settings = {name: settings[name] for name in settings.keys() - {"partition", "pick"}}
        return Leveled(**settings, by=by) if box is None else spatial
    return kinds[name](**settings)
