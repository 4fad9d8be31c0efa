"""The command `tideline`: commands, errors and exit codes.

    exit code   meaning                                     what to do
    0           done
    2           InvalidRequest: wrong command or value      fix the call
                Unauthorized: no token, or it may not       show another --token
    3           NotFound: no such folder, channel, key      check the name
    4           Conflict: exists with other content         re-read, decide
    5           Unavailable, Closed: not now                retry later
    6           Corruption: damaged bytes                   stop, tell the operator
    130         Ctrl-C
    141         the reader of our output went away (as `cmd | head` does)

An error is one line on stderr, `tideline: Kind: message`; never a traceback for an error
Tideline raises on purpose. A traceback is a bug.
"""

from __future__ import annotations

import gc
import os
import re
import sys
from typing import Annotated

import typer

import tideline
from tideline.cli import (
    backup,
    cluster,
    collections,
    completion,
    doctor,
    heatmap,
    manage,
    nearest,
    pipeline,
    serve,
    session,
    shell,
    store,
    token,
    verbs,
    volume,
    watch,
    windows,
    workload,
)
from tideline.cli.output import ReaderGone, warn
from tideline.errors import (
    Closed,
    Conflict,
    Corruption,
    InvalidRequest,
    NotFound,
    TidelineError,
    Unauthorized,
    Unavailable,
)

__all__ = ["app", "exit_code", "main", "run"]

_CODES: dict[type[TidelineError], int] = {
    InvalidRequest: 2,
    Unauthorized: 2,
    NotFound: 3,
    Conflict: 4,
    Unavailable: 5,
    Closed: 5,
    Corruption: 6,
}

# A point west of Greenwich starts with a minus sign, and would be read as an option.
_NEGATIVE_NUMBERS = re.compile(r"^-(\d|\.\d)[\d.]*(,|$)")

app = typer.Typer(
    name="tideline",
    help="A database for live data: one question about the past and the future.",
    epilog="Exit codes: 2 invalid request, 3 not found, 4 conflict, 5 unavailable, 6 corruption.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 96},
)
manage.register(app)
verbs.register(app)
collections.register(app)
watch.register(app)
nearest.register(app)
windows.register(app)
session.register(app)
shell.register(app)
pipeline.register(app)
workload.register(app)
heatmap.register(app)
serve.register(app)
token.register(app)
backup.register(app)
volume.register(app)
cluster.register(app)
doctor.register(app)
completion.register(app)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tideline {tideline.__version__}")
        raise typer.Exit


@app.callback()
def settings(
    memory_mb: Annotated[
        int | None, typer.Option(help="Memory for live data; what does not fit goes to disk.")
    ] = None,
    durability: Annotated[
        str | None,
        typer.Option(
            metavar="os|disk", help="os: survives a killed process. disk: also a power cut."
        ),
    ] = None,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    store.ACCESS.clear()
    store.SETTINGS.clear()
    if memory_mb is not None:
        store.SETTINGS["memory_mb"] = memory_mb
    if durability is not None:
        store.SETTINGS["durability"] = durability


def exit_code(error: TidelineError) -> int:
    """The exit code of an error.

    >>> exit_code(NotFound("no such channel"))
    3
    """
    return next((code for kind, code in _CODES.items() if isinstance(error, kind)), 1)


def main(arguments: list[str] | None = None) -> None:
    """Run the command and exit."""
    # What is imported stays: to look at it again after each 700 new objects is a tenth of a second.
    gc.set_threshold(10_000, 10, 10)
    given = sys.argv[1:] if arguments is None else arguments
    sys.exit(run(given))


def run(words: list[str]) -> int:
    """The exit code of one command; every expected failure becomes one line here."""
    # A leading space keeps "-73.98,40.75" a value; numbers are read with spaces stripped.
    words = [f" {word}" if _NEGATIVE_NUMBERS.match(word) else word for word in words]
    try:
        code = app(args=words, prog_name="tideline", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except TidelineError as error:
        warn(type(error).__name__, str(error))
        return exit_code(error)
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except (ReaderGone, BrokenPipeError):
        # Point stdout nowhere, so that the interpreter's own last flush
        # does not complain either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except FileNotFoundError as error:
        warn("NotFound", f"no such file. file={error.filename!r}")
        return _CODES[NotFound]
    except OSError as error:
        warn("Unavailable", f"{error.strerror or error}. file={error.filename!r}")
        return _CODES[Unavailable]
    except typer.Exit as error:
        return error.exit_code
    except Exception as error:
        # The parser's own complaints: a missing argument, an unknown option. Its classes moved
        # between releases of typer, what they can do did not.
        message = getattr(error, "format_message", None)
        if message is None:
            raise
        if not words or type(error).__name__ == "NoArgsIsHelpError":
            print(message(), file=sys.stderr)
            return _CODES[InvalidRequest]
        said = message() or "no command given; see `tideline --help`"
        warn("InvalidRequest", said + _given(error))
        return _CODES[InvalidRequest]


def _given(error: Exception) -> str:
    """The value that a complaint of the parser is about, where it does not say so itself."""
    try:
        [found] = error.__cause__.errors()  # type: ignore[union-attr]
        return f". given={found['input']!r}"
    except (AttributeError, KeyError, TypeError, ValueError):
        return ""
