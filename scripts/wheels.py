"""Build the wheels: `python scripts/wheels.py [--out dist]`.

    tideline-*-py3-none-any.whl             sources; the kernels compile at their first use
    tideline-*-cp311-cp311-<platform>.whl   the same, and the compiled kernels of this platform

The kernels in a platform wheel are made for a processor that most machines of the platform
surpass (`BASELINES` in src/tideline/kernels/cache.py). They are used where Python, numba and
LLVM have the versions they were made with; anywhere else the wheel compiles as the first one does.
Runs in the project's .venv; nothing is downloaded.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from tideline.kernels import cache
from tideline.kernels.warm import FOLDERS

ROOT = Path(__file__).resolve().parents[1]


def pure_wheel(out: Path) -> Path:
    """Build the wheel of the sources."""
    for left in [ROOT / "build" / "lib", *(ROOT / "build").glob("bdist.*")]:
        shutil.rmtree(left, ignore_errors=True)  # what is left there would get into the wheel
    with tempfile.TemporaryDirectory() as build:
        subprocess.run(
            [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check",
             "--no-deps", "--no-build-isolation", "--wheel-dir", build, str(ROOT)],
            check=True,
        )  # fmt: skip
        (built,) = Path(build).glob("*.whl")
        return Path(shutil.copy(built, out))


def compiled_kernels() -> dict[str, bytes]:
    """The kernels for this platform's baseline by their path in the package; compiled if needed."""
    name, _ = cache.BASELINES[platform.machine()]
    environment = {**os.environ, "NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": ""}
    subprocess.run([sys.executable, "-m", "tideline", "warm"], env=environment, check=True)
    found = {}
    for group in FOLDERS:
        fingerprint = cache.fingerprint(group)
        folder = cache.cache_base() / fingerprint / name
        for path in sorted(folder.iterdir()):
            if path.suffix in (".body", ".wrapper"):
                inside = f"tideline/kernels/{cache.SHIPPED}/{fingerprint}/{name}/{path.name}"
                found[inside] = path.read_bytes()
    return found


def platform_tags() -> list[str]:
    """Where numba's own wheel runs, ours does."""
    text = importlib.metadata.distribution("numba").read_text("WHEEL") or ""
    return [line.removeprefix("Tag: ") for line in text.splitlines() if line.startswith("Tag: ")]


def platform_wheel(pure: Path, out: Path) -> Path:
    """The pure wheel and the compiled kernels."""
    kernels = compiled_kernels()
    tags = platform_tags()
    name, version = pure.name.split("-")[:2]
    python, abi = tags[0].split("-")[:2]
    platforms = ".".join(tag.split("-")[2] for tag in tags)
    target = out / f"{name}-{version}-{python}-{abi}-{platforms}.whl"
    record = []
    with (
        zipfile.ZipFile(pure) as source,
        zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as wheel,
    ):

        def add(path: str, data: bytes) -> None:
            wheel.writestr(path, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{path},sha256={digest},{len(data)}")

        for info in source.infolist():
            data = source.read(info)
            if info.filename.endswith(".dist-info/WHEEL"):
                lines = [line for line in data.decode().splitlines() if line]
                kept = [line for line in lines if not line.startswith(("Tag:", "Root-Is-Purelib:"))]
                kept += ["Root-Is-Purelib: false", *(f"Tag: {tag}" for tag in tags)]
                data = ("\n".join(kept) + "\n").encode()
            if info.filename.endswith(".dist-info/RECORD"):
                listing = info.filename
            else:
                add(info.filename, data)
        for path, data in kernels.items():
            add(path, data)
        wheel.writestr(listing, "\n".join([*record, f"{listing},,"]) + "\n")
    return target


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    pure = pure_wheel(out)
    for wheel in (pure, platform_wheel(pure, out)):
        print(f"{wheel}  {wheel.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
