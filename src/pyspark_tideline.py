"""Spark finds the format `tideline` here: `spark.read.format("tideline")` in any session.

Spark looks for modules named `pyspark_*` on the path of the driver and takes the `DefaultSource`
in them. It is no class of its own: executors that got `tideline` in a zip do not have this module.
"""

from tideline.spark.source import TidelineSource as DefaultSource

__all__ = ["DefaultSource"]
