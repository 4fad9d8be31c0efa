"""What every command on data takes: DATABASE, a folder or the address of a server, and a token.

    add(app, find)                  hangs a function on the command line as such a command
    def find(database: Database, ...):
        with open_channel(database, channel) as opened:

DATABASE comes first and may be left out where one is known: in `tideline shell`, and where the
environment has TIDELINE_URL. A first word with a slash is then still a DATABASE: no name of a
channel or a collection has one, and a folder is written ./data.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand

from tideline.cli import store

__all__ = ["AsJson", "Ca", "DataCommand", "Database", "Token", "add"]

Database = Annotated[
    str,
    typer.Argument(
        metavar="DATABASE",
        help="A folder, or the address of a server (TIDELINE_URL, if it is left out).",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="JSON lines, also on a terminal.")]
Token = Annotated[
    str | None,
    typer.Option("--token", envvar="TIDELINE_TOKEN", help="For a server: a token."),
]
Ca = Annotated[
    str | None,
    typer.Option("--ca", metavar="FILE", help="For a server: certificates to trust (PEM)."),
]


class DataCommand(TyperCommand):
    """A command whose first argument is DATABASE, which may be left out."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        usual = store.usual_database()
        if usual is not None:
            given, *_ = self.make_parser(ctx).parse_args(args=list(args))
            if store.held() is not None or not _is_database(given.get("database")):
                args = [usual, *args]
        return super().parse_args(ctx, args)


def _is_database(word: Any) -> bool:
    """Whether a first word is a DATABASE and no name.

    >>> [_is_database(word) for word in ("./data", "http://host", "..", "roads", None)]
    [True, True, True, False, False]
    """
    if not isinstance(word, str):
        return False
    return word in (".", "..") or "/" in word or os.sep in word


def add(app: typer.Typer, function: Callable[..., None], name: str | None = None) -> None:
    """Hang a function on the command line, with --token and --ca."""
    app.command(name, cls=DataCommand)(_with_access(function))


def _with_access(function: Callable[..., None]) -> Callable[..., None]:
    """The function with two options more, which are remembered for when DATABASE is opened."""

    @functools.wraps(function)
    def run(*, token: str | None, ca: str | None, **options: Any) -> None:
        store.ACCESS.update(token=token, ca=ca)
        function(**options)

    more = {"token": Token, "ca": Ca}
    signature = inspect.signature(function, eval_str=True)
    run.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[
            *signature.parameters.values(),
            *(
                inspect.Parameter(
                    name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
                )
                for name, annotation in more.items()
            ),
        ]
    )
    run.__annotations__ = {**get_type_hints(function, include_extras=True), **more}
    return run
