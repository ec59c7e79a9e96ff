"""The layers: our own package, and what it depends on, built without Docker for Lambda's platform.

A folder of dependencies is named by the hash of its pins, so a second synth finds it there.

Where a Python of Lambda's version is on PATH, the layers hold bytecode too: a function that starts
cold then imports three to four times as fast. No other Python can write it, so that elsewhere they
hold none.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from autocoder.evidence import code_digest
from infra.settings import ROOT

BUILD = ROOT / "build" / "layers"
PYTHON = "3.13"
PLATFORM = ["--python-platform", "aarch64-manylinux_2_28", "--python-version", PYTHON]
CHOSEN = {**os.environ, "PYENV_VERSION": PYTHON}  # where the command is pyenv's
NOT_IN_THE_LAYER = shutil.ignore_patterns("local", "cli", "__pycache__")


class Layers(Construct):
    """One layer a set of dependencies, so that a function carries only what it imports."""

    def __init__(self, scope: Construct, id: str) -> None:
        """`code` is pure Python and fits every platform; the others hold arm64 wheels."""
        super().__init__(scope, id)
        self.code = lambda_.LayerVersion(
            self, "Code", code=lambda_.Code.from_asset(str(build_code()))
        )
        self.base = self._dependencies("Base", "layer-base")
        self.e2b = self._dependencies("E2b", "layer-e2b")
        self.anthropic = self._dependencies("Anthropic", "layer-anthropic")

    def _dependencies(self, id: str, requirements: str) -> lambda_.LayerVersion:
        return lambda_.LayerVersion(
            self,
            id,
            code=lambda_.Code.from_asset(str(build_dependencies(requirements))),
            compatible_architectures=[lambda_.Architecture.ARM_64],
            compatible_runtimes=[lambda_.Runtime.PYTHON_3_13],
        )


def build_code() -> Path:
    """Copy our package as it goes into the cloud: without the CLI and the local cloud."""
    fresh = Path(tempfile.mkdtemp(prefix="code-", dir=_made(BUILD)))
    package = fresh / "python" / "autocoder"
    shutil.copytree(ROOT / "layers" / "autocoder", package, ignore=NOT_IN_THE_LAYER)
    digest = code_digest(package)[:16]  # evidence has it in full
    compile_bytecode(fresh)
    return _kept(fresh, BUILD / f"code-{digest}{'-compiled' * bool(compiler())}")


def _kept(fresh: Path, target: Path) -> Path:
    """Give a folder its name, unless another synth was faster: the content is the same."""
    try:
        fresh.rename(target)
    except OSError:
        shutil.rmtree(fresh)
        if not target.exists():
            raise
    return target


def build_dependencies(requirements: str) -> Path:
    """Install pinned wheels for Lambda's platform."""
    pins = ROOT / "requirements" / f"{requirements}.txt"
    digest = hashlib.sha256(pins.read_bytes() + " ".join(PLATFORM).encode()).hexdigest()[:16]
    compiled = "-compiled" if compiler() else ""
    target = BUILD / f"{requirements}-{digest}{compiled}"
    if target.exists():
        return target
    fresh = Path(tempfile.mkdtemp(prefix=f"{requirements}-", dir=_made(BUILD)))
    command = [str(Path(sys.prefix) / "bin" / "uv"), "pip", "install", "--quiet", "--no-deps"]
    command += ["--require-hashes", "--only-binary", ":all:", "--no-compile-bytecode", *PLATFORM]
    command += ["--target", str(fresh / "python"), "-r", str(pins)]
    try:
        subprocess.run(command, check=True)
        compile_bytecode(fresh)
    except subprocess.CalledProcessError as error:
        shutil.rmtree(fresh)
        raise SystemExit(
            f"The layer {requirements} could not be built: uv ended with {error.returncode}. "
            "The first synth needs the package registry that pip is configured for."
        ) from None
    return _kept(fresh, target)


@cache
def compiler() -> str | None:
    """A Python whose bytecode Lambda's can run; None if none on PATH is, or does not run."""
    found = shutil.which(f"python{PYTHON}")
    if not found:
        return None
    probe = subprocess.run([found, "--version"], env=CHOSEN, capture_output=True, text=True)
    return found if probe.stdout.startswith(f"Python {PYTHON}.") else None


def compile_bytecode(layer: Path) -> None:
    """Compile a layer's modules, if this machine can.

    Unchecked: a layer can't change, and its files' times are lost on the way into the cloud.
    """
    if python := compiler():
        command = [python, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
        command += ["-s", str(layer), "-p", "/opt", str(layer / "python")]
        subprocess.run(command, env=CHOSEN, check=True)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
