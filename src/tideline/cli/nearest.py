"""`tideline nearest`: the documents nearest to a point, and how far they are."""

from __future__ import annotations

from typing import Annotated

import typer

from tideline.cli.command import AsJson, Database, add
from tideline.cli.documents import Name, condition_of, fields_of, opened_collection
from tideline.cli.output import show
from tideline.cli.parse import parse_numbers

__all__ = ["register"]

Longitude = Annotated[
    str, typer.Argument(metavar="LON", help="Degrees to the east; or both numbers, LON,LAT.")
]
Latitude = Annotated[float | None, typer.Argument(metavar="LAT", help="Degrees to the north.")]


def register(app: typer.Typer) -> None:
    """Hang the command of this file on the command line."""
    add(app, nearest)


def nearest(
    database: Database,
    collection: Name,
    lon: Longitude,
    lat: Latitude = None,
    where: Annotated[
        str | None, typer.Option(metavar="WHERE", help="Only these: a condition, as JSON.")
    ] = None,
    limit: Annotated[int, typer.Option(help="At most so many.")] = 10,
    field: Annotated[
        str | None, typer.Option(help="The field of the places (the one with a spatial index).")
    ] = None,
    max_distance_m: Annotated[float | None, typer.Option(help="Not farther than so far.")] = None,
    min_distance_m: Annotated[float | None, typer.Option(help="Not nearer than so far.")] = None,
    fields: Annotated[
        str | None, typer.Option(metavar="FIELDS", help="These fields alone, a,b.c; or as JSON.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """The documents nearest to a point, with the distance in metres.

    Twin of Collection.nearest.
    """
    point = parse_numbers(lon if lat is None else f"{lon},{lat}", 2, "LON LAT, or LON,LAT")
    with opened_collection(database, collection) as opened:
        found = opened.nearest(
            point, limit, condition_of(where), field=field, max_distance_m=max_distance_m,
            min_distance_m=min_distance_m, fields=fields_of(fields),
        )  # fmt: skip
        rows = ({"metres": round(one.metres, 3), **one.document} for one in found)
        show(rows, title=f"{collection}, nearest first", as_json=as_json, wide=60)
