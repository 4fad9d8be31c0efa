"""`tideline token`: who may use a server. Works while the server runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from tideline.cli.command import AsJson
from tideline.cli.manage import Folder
from tideline.cli.output import line, show
from tideline.errors import NotFound
from tideline.lsm.folder import check_no_strangers, has_database, make_folder
from tideline.lsm.manifest import Manifest

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
    from tideline.server.tokens import check_grant

    check_grant(scope, user)  # before a folder is made
    make_folder(folder, "path is not a folder that can be used")
    check_no_strangers(folder)
    text, token = _tokens(folder).create(scope, user=user, name=name)
    line({"token": text, "id": token.id, "scopes": list(token.scopes), "user": token.user})
    for note in _notes(folder, token.scopes):
        typer.echo(f"tideline: note: {note}", err=True)


def _notes(folder: Path, scopes: tuple[str, ...]) -> Iterator[str]:
    """What the caller may have misspelt: it may also be made later."""
    document = Manifest(folder / "MANIFEST").load()
    if document is None:
        yield f"there is no database in {folder} yet; the token is for the one that is made there"
        return
    channels = document.get("channels", {})
    for scope in scopes:
        name = scope.partition(":")[2]
        if name and name not in channels:
            known = f"; there is {', '.join(sorted(channels))}" if channels else ""
            yield f"there is no channel {name!r} yet{known}"


def _check_database(folder: Path) -> None:
    if not folder.is_dir():
        raise NotFound("no such folder: check the path", folder=str(folder))
    if not (has_database(folder) or (folder / "TOKENS").is_file()):
        raise NotFound("no database in this folder: check the path", folder=str(folder))


def list_tokens(folder: Folder, as_json: AsJson = False) -> None:
    """List the tokens, without their secrets.

    Twin of tideline.server.tokens.Tokens.load.
    """
    _check_database(folder)
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
    _check_database(folder)
    _tokens(folder).revoke(id)
    line({"revoked": id})
