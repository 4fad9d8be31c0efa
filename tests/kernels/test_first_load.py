"""The first call of a kernel may be interrupted anywhere: the next call finds numba as it was.

Each try is a process of its own, forked before any kernel was loaded: the first load sets numba's
runtime up, under numba's lock. Every ninth place is tried.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
_LONG_S = 300.0

TRY = """
import os, sys, threading
import numba, numpy as np
from interrupting import Thrower
from tideline.kernels import jsontext

kernels = os.path.dirname(jsontext.__file__)
core = os.path.join(os.path.dirname(numba.__file__), "core")
places = (kernels, os.path.join(os.path.dirname(kernels), "shelter"))
places += tuple(os.path.join(core, name) for name in ("compiler_lock", "base", "runtime"))
text = np.frombuffer(bytearray(b'{"a":1}1e999'), np.uint8)
offsets = np.array([0, 7, 12])

def call():
    ok = np.empty(2, np.bool_)
    jsontext.check_rows(text, offsets, np.ones(2, np.bool_), ok)
    return ok.tolist()

def child(kind, n):
    thrower = Thrower(kind, n, parts=places)
    with thrower:
        call()
    found = []
    other = threading.Thread(target=lambda: found.append(call()), daemon=True)
    other.start()
    other.join(30)
    fine = found == [[True, False]] == [call()]
    if not fine:
        print(kind, n, thrower.where, found, file=sys.stderr, flush=True)
    os._exit((2 if thrower.hit else 1) if fine else 3)

for kind in ("line", "call"):
    n, code = 0, 2
    while code == 2:
        n += 9
        pid = os.fork()
        if pid == 0:
            try:
                child(kind, n)
            finally:
                os._exit(4)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code == 1 and n > 10, (kind, n, code)
    print(kind, n)
"""


def test_a_first_call_may_be_interrupted_anywhere() -> None:
    path = os.pathsep.join([str(TESTS), *(each for each in sys.path if each)])
    done = subprocess.run(
        [sys.executable, "-c", TRY], capture_output=True, text=True, timeout=_LONG_S, check=False,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_a_process_that_compiles_nothing_does_without_what_compilers_know() -> None:
    """Numba's knowledge of numpy costs a fifth of a second; a kernel that makes an array is in."""
    call = TRY[: TRY.index("def child")] + (
        "compiled = __import__('tideline.kernels.compiler').kernels.compiler.compiled\n"
        "print(call(), compiled, 'numba.np.arraymath' in sys.modules)\n"
    )
    path = os.pathsep.join([str(TESTS), *(each for each in sys.path if each)])
    for _ in range(2):  # the first may compile
        done = subprocess.run(
            [sys.executable, "-c", call], capture_output=True, text=True, timeout=_LONG_S,
            check=True, env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
    assert done.stdout == "[True, False] [] False\n"
