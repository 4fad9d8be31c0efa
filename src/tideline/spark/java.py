"""The Java that Spark runs on: found before Spark looks for it, with advice when there is none."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

from tideline.errors import Unavailable

__all__ = ["JAVA", "find_java"]

JAVA = 17
"""The oldest Java that Spark 4 runs on."""


def find_java() -> str:
    """The Java that Spark will use: JAVA_HOME's, else the PATH's. `Unavailable` if none fits."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    advice = (
        f"install one (Debian, Ubuntu: apt-get install openjdk-{JAVA}-jre-headless) "
        "or set JAVA_HOME to its folder"
    )
    if java is None or not os.access(java, os.X_OK):
        where = {"JAVA_HOME": home} if home else {}
        raise Unavailable(f"Spark needs Java {JAVA} or newer and there is none: {advice}", **where)
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(
            f"Spark needs Java {JAVA} or newer and this one does not run: {advice}",
            java=java, error=str(error),
        ) from None  # fmt: skip
    found = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    if found is None or int(found[1]) < JAVA:
        raise Unavailable(
            f"Spark needs Java {JAVA} or newer: {advice}",
            java=java, version=found[1] if found else said.stderr.strip()[:200],
        )  # fmt: skip
    return java
