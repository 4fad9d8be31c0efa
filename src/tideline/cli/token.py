"""`tideline token`: who may use a server. Works while the server runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from tideline.cli.command import AsJson
from tideline.cli.manage import Folder
from tideline.cli.output import line, show
from tideline.errors import InvalidRequest, NotFound
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

    _require_folder(folder)
    return Tokens(folder)


def _require_folder(folder: Path) -> None:
    if str(folder).lower().startswith(("http:/", "https:/")):
        raise InvalidRequest(
            "tokens are made where the folder of the server is: give the folder",
            database=str(folder),
        )


def create(
    folder: Folder,
    scope: Annotated[
        list[str],
        typer.Option(
            help="read, publish, subscribe, write or admin; read:roads for one channel or"
            " collection."
        ),
    ],
    user: Annotated[str | None, typer.Option(help="Bind it to this user.")] = None,
    name: Annotated[str, typer.Option(help="What it is for.")] = "",
    rows: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLLECTION=CONDITION",
            help="""The documents it may see and write: orders='{"owner": "$user"}'.""",
        ),
    ] = None,
) -> None:
    """Make a token and print it, once.

    Twin of tideline.server.tokens.Tokens.create.

    --scope may be repeated. A token bound to a user subscribes for that user alone, and sees and
    cancels no other's subscriptions. With --rows, also repeated, it uses the collections that are
    named, and of them the documents that meet the condition; $user in it is the user, and * any
    other collection.
    """
    from tideline.server.tokens import check_grant

    conditions = _rows(rows)
    check_grant(scope, user, conditions)  # before a folder is made
    _require_folder(folder)
    make_folder(folder, "path is not a folder that can be used")
    check_no_strangers(folder)
    text, token = _tokens(folder).create(scope, user=user, name=name, rows=conditions)
    shown = {"token": text, "id": token.id, "scopes": list(token.scopes), "user": token.user}
    line(shown if token.rows is None else {**shown, "rows": token.rows})
    for note in _notes(folder, token.scopes):
        typer.echo(f"tideline: note: {note}", err=True)


def _notes(folder: Path, scopes: tuple[str, ...]) -> Iterator[str]:
    """What the caller may have misspelt: it may also be made later."""
    document = Manifest(folder / "MANIFEST").load()
    if document is None:
        yield f"there is no database in {folder} yet; the token is for the one that is made there"
        return
    known = {**document.get("channels", {}), **document.get("collections", {})}
    for name in dict.fromkeys(scope.partition(":")[2] for scope in scopes):
        if name and name not in known:
            others = f"; there is {', '.join(sorted(known))}" if known else ""
            yield f"there is no channel or collection {name!r} yet{others}"


def _rows(given: list[str] | None) -> dict[str, Any] | None:
    """Conditions by collection, from the options."""
    found: dict[str, Any] = {}
    for text in given or ():
        name, equals, condition = text.partition("=")
        if not equals or name in found:
            raise InvalidRequest(
                "--rows is given once for a collection, as COLLECTION=CONDITION", rows=text
            )
        try:
            found[name] = msgspec.json.decode(condition)
        except msgspec.DecodeError as error:
            raise InvalidRequest(f"the condition is not JSON: {error}", rows=text) from None
    return found or None


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
         "rows": token.rows, "made": token.made}
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
