"""Lucene: its jars from Maven Central, and a process that answers windows and words nearly right.

    compiled    a program with what it needs, fetched once by mvn into the user's own repository
    FuzzyWords  one segment; boxes by LatLonPoint, words by their trigrams, and every candidate held
                against the question (FuzzyWords.java says how, and what else was tried)

FuzzyWords is asked over a pipe, and says itself how long a question took, without the pipe.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.pages import Took

if TYPE_CHECKING:
    from benchmarks.fuzzy_data import Objects, Question

__all__ = ["VERSION", "FuzzyWords", "compiled"]

VERSION = "9.11.1"
_HERE = Path(__file__).parent
_OURS = Path.home() / ".m2" / "repository" / "org" / "apache" / "lucene"


def compiled(source: Path, artifact: str, folder: Path) -> list[str]:
    """The command that runs a program, compiled into a folder; ImportError says what lacks."""
    if not list(_OURS.glob(f"{artifact}/{VERSION}/*.jar")):
        _run(
            "mvn",
            "-q",
            "-B",
            "dependency:get",
            f"-Dartifact=org.apache.lucene:{artifact}:{VERSION}",
        )
    path = ":".join(map(str, _OURS.glob(f"*/{VERSION}/*.jar")))
    _run("javac", "-cp", path, "-d", str(folder), str(source))
    return ["java", "-Xmx3g", "-cp", f"{path}:{folder}", source.stem]


def _run(*command: str) -> None:
    if shutil.which(command[0]) is None:
        raise ImportError(f"{command[0]} is not installed")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        told = (done.stderr.strip() or done.stdout.strip() or str(done.returncode)).splitlines()
        raise ImportError(f"{command[0]} failed: {told[-1]}")


class FuzzyWords:
    """An index of all objects in a process of its own."""

    name = "Lucene: trigrams, LatLonPoint"

    def __init__(self, of: Objects) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tideline-bench-")
        folder = Path(self._folder.name)
        try:
            command = compiled(_HERE / "FuzzyWords.java", "lucene-core", folder)
        except BaseException:
            self._folder.cleanup()
            raise
        names = of.vocabulary
        both = zip(of.lon.tolist(), of.lat.tolist(), of.keywords.tolist(), strict=True)
        with (folder / "objects").open("w") as file:
            for lon, lat, (a, b, c) in both:
                file.write(f"{lon!r}\t{lat!r}\t{names[a]}\t{names[b]}\t{names[c]}\n")
        command += [str(folder / "objects"), str(folder / "index")]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen(command, text=True, stderr=subprocess.DEVNULL, **pipes)
        if self._line() != "ready\n":
            self.close()
            raise ImportError("java failed")

    def _line(self) -> str:
        assert self._process.stdout is not None
        return str(self._process.stdout.readline())

    def _ask(self, asked: Question) -> list[str]:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join([*map(repr, asked.box), *asked.words]) + "\n")
        self._process.stdin.flush()
        return self._line().split()

    def answer(self, asked: Question) -> set[int]:
        return set(map(int, self._ask(asked)[1:]))

    def warm(self, asked: list[Question]) -> None:
        """Java compiles what runs often: ask ten times over."""
        for question in asked * 10:
            self._ask(question)

    def timed(self, asked: Question) -> Took:
        """How long it took in its process."""
        return Took(int(self._ask(asked)[0]) / 1000)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._folder.cleanup()
