"""Kafka, Spark, Tideline, Kafka: operations from one topic, who was told of what in another.

make kafka                          # once: the jars of a broker and of Spark's connector
python examples/kafka_pipeline      # starts a broker, sends, runs the pipeline, reads the answers
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import tideline

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))
from examples.kafka_pipeline.broker import Broker, connector_jars  # noqa: E402


def operations(count: int) -> list[tuple[str, str]]:
    """Who asks about a road, what happens on one. Kafka keeps the order of a key: the road."""
    draw = random.Random(1)
    start = datetime.now(UTC) - timedelta(seconds=count)
    made = []
    for number in range(count):
        at = start + timedelta(seconds=number)
        row = {"road": f"road {draw.randrange(20)}", "at": at.isoformat()}
        row["until"] = (at + timedelta(hours=1)).isoformat()
        if number % 4 == 0:
            row |= {"op": "subscribe", "id": f"s{number}", "user": f"driver {number}"}
        else:
            row |= {"op": "publish", "id": f"e{number}", "kind": draw.choice(["jam", "ice", "fog"])}
        made.append((row["road"], json.dumps(row)))
    made.append(("road 1", "this is not JSON"))  # and one that goes to the dead letters
    return made


def run(folder: Path, count: int) -> tuple[dict[str, int], list[dict[str, str]]]:
    """What the pipeline did, and the answers as a client of Kafka's reads them."""
    from tideline.spark import Pipeline, session, share

    print("starting a Kafka broker and Spark")
    spark = session(config={"spark.jars": connector_jars()}, memory="1g")
    with Broker(folder / "kafka") as broker:
        broker.send(broker.topic("operations"), operations(count))
        print(f"{broker.count('operations')} messages are in the topic 'operations'")
        config = (HERE / "pipeline.toml").read_text("utf-8").replace("{broker}", broker.address)
        (folder / "pipeline.toml").write_text(config, "utf-8")
        broker.topic("answers")
        with tideline.open(folder / "data") as db, share(db):
            roads = db.channel("roads", journal_s=3600)
            totals = Pipeline.from_file(folder / "pipeline.toml").run(db, spark=spark).totals
            print(f"the pipeline stored {totals['stored']}, dead letters: {totals['dead']}")
            print(f"the channel: {roads.stats().events} events")
            (  # the answers that there are, as a stream of Spark's that ends with the last one
                spark.readStream.format("tideline")
                .options(channel="roads", kind="answers")
                .load(str(folder / "data"))
                .selectExpr("subscription AS key", "to_json(struct(*)) AS value")
                .writeStream.format("kafka")
                .option("kafka.bootstrap.servers", broker.address)
                .option("topic", "answers")
                .option("checkpointLocation", str(folder / "answers"))
                .trigger(availableNow=True)
                .start()
                .awaitTermination()
            )
        sent = broker.count("answers")
        numbers = iter(range(1, sent + 1))
        found = broker.read("answers", lambda value: next(numbers) == sent) if sent else []
        print(f"{sent} answers are in the topic 'answers', the first of them:")
        answers = [json.loads(each) for each in found]
        for answer in answers[:5]:
            print(f"  {answer['user']} is told of {answer['event']} ({answer['kind']})")
    spark.stop()
    return totals, answers


def main() -> int:
    options = argparse.ArgumentParser(
        prog="python examples/kafka_pipeline", description=__doc__.splitlines()[0]
    )
    options.add_argument("--messages", type=int, default=2_000, help="how many; 2000")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        try:
            run(Path(folder), chosen.messages)
        except (RuntimeError, tideline.TidelineError) as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
