"""Commands about pipelines.

tideline pipeline run     tideline.spark.Pipeline.run
tideline pipeline check   tideline.spark.Pipeline.explain
tideline pipeline export  tideline.spark.Pipeline.export
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tideline.cli.output import warn
from tideline.errors import InvalidRequest

if TYPE_CHECKING:
    from tideline.spark.pipeline import Pipeline

__all__ = ["register"]

File = Annotated[Path, typer.Argument(metavar="FILE", help="The config, a TOML file.")]


def register(app: typer.Typer) -> None:
    """Hang the commands of this file on the command line."""
    pipeline = typer.Typer(
        help="Bring data in through Spark.", no_args_is_help=True, rich_markup_mode=None
    )
    pipeline.command("run")(run)
    pipeline.command("check")(check)
    pipeline.command("export")(export)
    app.add_typer(pipeline, name="pipeline")


def run(
    file: File,
    as_json: Annotated[
        bool, typer.Option("--json", help="A line of JSON for each batch and for the summary.")
    ] = False,
) -> None:
    """Run a pipeline: from its source into a channel or a collection, each row once.

    It goes on where the last run ended. Ctrl-C stops it after the current batch.
    Twin of tideline.spark.Pipeline.run.
    """
    from tideline.cli.output import line
    from tideline.spark.session import check_pyspark

    check_pyspark()
    with _each_on_its_line():
        pipeline = _pipeline(file)
        from tideline.cli.progress import summary_text, watch_for_terminal

        with watch_for_terminal(pipeline.config.name, as_json=as_json) as watch:
            summary = pipeline.run(watch=watch)
    if as_json:
        line({"kind": "summary", **summary.to_dict()})
    else:
        print(summary_text(summary))


def check(
    file: File,
    spark: Annotated[
        bool,
        typer.Option("--spark", help="Start Spark too, to look at the source and the expressions."),
    ] = False,
) -> None:
    """Explain what a pipeline would do, and find what is wrong with its config.

    Twin of tideline.spark.Pipeline.explain.
    """
    from tideline.spark.session import check_pyspark

    check_pyspark()
    from tideline.spark.pipeline.preflight import surroundings

    with _each_on_its_line():
        pipeline = _pipeline(file)
        pipeline.check()
    print(pipeline.explain())
    print()
    for sentence in surroundings(pipeline.config):
        print(f"  {sentence}")
    if spark:
        with _each_on_its_line():
            names = pipeline.analyse()
        print(f"  Spark: the source's columns are {', '.join(names)}")
    elif pipeline.config.rules or any(it.sql for it in pipeline.config.clean.values()):
        print("  Spark: SQL expressions are looked at when it runs, or with --spark")


def export(
    file: File,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the project goes.")],
    to: Annotated[
        str, typer.Option("--to", help="What to make: sdp, Spark's declarative pipelines.")
    ] = "sdp",
) -> None:
    """Write a pipeline as a project that spark-pipelines runs.

    Twin of tideline.spark.Pipeline.export.
    """
    from tideline.spark.session import check_pyspark

    check_pyspark()
    with _each_on_its_line():
        made = _pipeline(file).export(folder, to=to)
    for name in made:
        print(name)
    print(f"run it: spark-pipelines run --spec {made[0]}")


def _pipeline(file: Path) -> Pipeline:
    from tideline.spark.pipeline import Pipeline

    return Pipeline.from_file(file)


@contextmanager
def _each_on_its_line() -> Iterator[None]:
    """Every mistake in a config is a line of its own on stderr."""
    try:
        yield
    except InvalidRequest as error:
        for text in str(error).splitlines():
            warn("InvalidRequest", text)
        raise typer.Exit(2) from None
