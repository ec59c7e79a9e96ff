"""The real tools whose reports are read, and projects for them."""

import os
import shutil
from pathlib import Path

import pytest

from tests.npm_packages import NODE, installed

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
    """Where jest and vitest are."""
    return installed(PINNED)


def write(folder: Path, files: dict[str, str]) -> None:
    """Put files into a folder."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
