"""A function in a process of its own, with a pipe; when its time is up, all of it goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from typing import Any

import psutil

__all__ = ["hosted", "within"]

_spawn = get_context("spawn")


@contextmanager
def hosted(target: Callable[..., None], *arguments: Any) -> Iterator[tuple[Any, int]]:
    """A process that runs `target(pipe, *arguments)`: (this end of the pipe, its id).

    At the end of the block it is given a moment to end by itself; then it and every process it has
    started are killed.
    """
    near, far = _spawn.Pipe()
    process = _spawn.Process(target=target, args=(far, *arguments))
    process.start()
    far.close()
    assert process.pid is not None
    family: list[psutil.Process] = []
    try:
        yield near, process.pid
        process.join(20)
    finally:
        with suppress(psutil.NoSuchProcess):
            host = psutil.Process(process.pid)
            family = [*host.children(recursive=True), host]
        for member in family:
            with suppress(psutil.NoSuchProcess):
                member.kill()
        process.join()
        near.close()


def within(seconds: float, function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function of a module gives in a fresh process; TimeoutError when it takes longer."""
    with hosted(_call, function, arguments) as (pipe, pid):
        if not pipe.poll(seconds):
            with suppress(psutil.NoSuchProcess):
                host = psutil.Process(pid)
                for member in [*host.children(recursive=True), host]:
                    with suppress(psutil.NoSuchProcess):
                        member.kill()
            raise TimeoutError(f"not within {seconds:.0f} s")
        try:
            good, result = pipe.recv()
        except EOFError:
            raise RuntimeError("its process ended") from None
    if good:
        return result
    raise RuntimeError(result)


def _call(pipe: Any, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        sent = (True, function(*arguments))
    except Exception as error:
        sent = (False, f"{type(error).__name__}: {error}")
    pipe.send(sent)
