"""A real Kafka broker for the tests: `def test_it(kafka): ...`. It is the one of the example."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from examples.kafka_pipeline.broker import Broker, connector_jars

__all__ = ["Broker", "connector_jars", "kafka"]


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The broker; stopped when the last test has run."""
    with Broker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker
    shutil.rmtree(broker.folder, ignore_errors=True)
