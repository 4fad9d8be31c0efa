"""Open a database on an executor of a small real cluster, and print what that took.

Run by test_shipping.py: a process has one Spark session, and this is another one than the tests'.
The argument is an empty folder, for the executor's cache of kernels.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from tideline.spark import session


def first_use(batches: Any) -> Any:
    import tempfile

    import pyarrow as pa

    import tideline
    from tideline.kernels import cache, compiler

    with tempfile.TemporaryDirectory() as folder, tideline.open(folder) as db:
        news = db.channel("news")
        news.publish("a", {"n": 1}, ttl_s=60)
        past = news.subscribe("a", user="ann", since_s=-60, until_s=60).past
    for _ in batches:
        found = {
            "file": tideline.__file__, "past": len(list(past)), "cache": str(cache.cache_base()),
            "compiled": len(compiler.compiled),
        }  # fmt: skip
        yield pa.RecordBatch.from_pydict({name: [value] for name, value in found.items()})


def main(folder: str) -> None:
    spark = session(
        master="local-cluster[1,1,1024]", memory="1g",
        config={"spark.executorEnv.NUMBA_CACHE_DIR": folder},
    )  # fmt: skip
    schema = "file string, past long, cache string, compiled long"
    found = spark.range(1, numPartitions=1).mapInArrow(first_use, schema).first()
    print(json.dumps(found.asDict()))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
