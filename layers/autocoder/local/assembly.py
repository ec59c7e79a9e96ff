"""The synthesized template: what `python app.py` writes, kept until what it reads changes."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from autocoder.errors import Mendable
from autocoder.registries import configuration

ROOT = Path(__file__).parents[3]
BUILD = ROOT / "build"
INPUTS = ("app.py", "cdk.json", "infra", "functions", "layers", "requirements")
NOT_SYNTHESIZED = (ROOT / "layers/autocoder/local", ROOT / "layers/autocoder/cli")
IMPORTED = ROOT / "layers/autocoder/local/toolchain.py"  # by infra/egress.py


class SynthError(Mendable):
    """`python app.py` failed; the text is what it said."""


def synthesize(say: Callable[[str], None]) -> Path:
    """Give the cloud assembly of this very source, synthesizing it if need be."""
    target = BUILD / f"assembly-{fingerprint()}"
    BUILD.mkdir(exist_ok=True)
    with (BUILD / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of two who need it, one makes it
        return target if target.exists() else _synthesize_to(target, say)


def _synthesize_to(target: Path, say: Callable[[str], None]) -> Path:
    say("synthesizing the template with CDK")
    fresh = Path(tempfile.mkdtemp(prefix="synth-", dir=BUILD))
    try:
        done = subprocess.run(
            [sys.executable, "app.py"],
            cwd=ROOT,
            env={**os.environ, **synth_environment(fresh / "out"), "TMPDIR": str(fresh)},
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise SynthError(f"python app.py failed:\n{done.stderr or done.stdout}")
        for old in BUILD.glob("assembly-*"):
            shutil.rmtree(old)
        (fresh / "out").rename(target)
    finally:
        shutil.rmtree(fresh)  # with what an interrupted CDK left
    return target


def fingerprint() -> str:
    """A hash of all that goes into the template or its assets: files, and where packages are."""
    digest = hashlib.sha256(configuration())
    for name in INPUTS:
        top = ROOT / name
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            inside = any(path.is_relative_to(folder) for folder in NOT_SYNTHESIZED)
            counts = path == IMPORTED or not inside
            if path.is_file() and counts and path.suffix != ".pyc":
                digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def synth_environment(target: Path) -> dict[str, str]:
    """Where `python app.py` writes, and what makes it fast."""
    return {"CDK_OUTDIR": str(target), "NODE_COMPILE_CACHE": str(BUILD / "node-cache")}


if __name__ == "__main__":
    synthesize(lambda line: print(line, file=sys.stderr))  # noqa: T201
