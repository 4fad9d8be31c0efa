"""`tideline token`: who may use a server. Works while the server runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tideline.cli.manage import AsJson, Folder
from tideline.cli.output import line, show
from tideline.errors import InvalidRequest, NotFound

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Hang the commands on the command line."""
    token = typer.Typer(
        help="Tokens: who may use a server.", no_args_is_help=True, rich_markup_mode=None
    )
    token.command("create")(create)
    token.command("list")(list_tokens)
    token.command("revoke")(revoke)
    app.add_typer(token, name="token")


def _tokens(folder: Path) -> Any:
    from tideline.server.tokens import Tokens

    return Tokens(folder)


def create(
    folder: Folder,
    scope: Annotated[
        list[str],
        typer.Option(help="read, publish, subscribe or admin; read:roads for one channel."),
    ],
    user: Annotated[str | None, typer.Option(help="Bind it to this user.")] = None,
    name: Annotated[str, typer.Option(help="What it is for.")] = "",
) -> None:
    """Make a token and print it, once.

    Twin of tideline.server.tokens.Tokens.create.

    --scope may be repeated. A token bound to a user subscribes for that user alone, and sees and
    cancels no other's subscriptions.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidRequest(
            "path is not a folder that can be used", path=str(folder), error=error.strerror
        ) from None
    text, token = _tokens(folder).create(scope, user=user, name=name)
    line({"token": text, "id": token.id, "scopes": list(token.scopes), "user": token.user})


def list_tokens(folder: Folder, as_json: AsJson = False) -> None:
    """List the tokens, without their secrets.

    Twin of tideline.server.tokens.Tokens.load.
    """
    if not folder.is_dir():
        raise NotFound("no such folder", folder=str(folder))
    rows = [
        {"id": token.id, "name": token.name, "scopes": list(token.scopes), "user": token.user,
         "made": token.made}
        for token in _tokens(folder).load()
    ]  # fmt: skip
    show(rows, title="tokens", as_json=as_json)


def revoke(
    folder: Folder,
    id: Annotated[str, typer.Argument(metavar="ID", help="The id of the token.")],
) -> None:
    """Make a token worthless; a running server closes its connections.

    Twin of tideline.server.tokens.Tokens.revoke.
    """
    _tokens(folder).revoke(id)
    line({"revoked": id})
