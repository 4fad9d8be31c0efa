"""Matching on Spark: `match(subscriptions, events, space=...)`; see match.py."""

from tideline.spark.matching.match import match

__all__ = ["match"]
