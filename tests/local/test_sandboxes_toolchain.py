"""The folder of tools is made once, whole, and for everyone to read."""

import shutil
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from autocoder.local import toolchain


def test_two_who_race_get_the_same_whole_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, "_cache", lambda: tmp_path / "cache")
    said: list[str] = []
    with ThreadPoolExecutor(2) as both:
        folders = list(both.map(lambda _: toolchain.ensure_toolchain(said.append), range(2)))
    assert folders[0] == folders[1]
    assert list((tmp_path / "cache").iterdir()) == [folders[0]]
    assert said

    version = [str(folders[0] / "bin" / "python3"), "-m", "pytest", "--version"]
    assert subprocess.run(version, capture_output=True, check=True, env={}).stdout
    for path in folders[0].rglob("*"):
        if not path.is_symlink():
            wanted = stat.S_IROTH | (stat.S_IXOTH if path.is_dir() else 0)
            assert path.stat().st_mode & wanted == wanted, path

    said.clear()
    assert toolchain.ensure_toolchain(said.append) == folders[0]
    assert said == []
    shutil.rmtree(tmp_path / "cache")


def test_a_full_disk_is_named_with_the_place_and_the_size(tmp_path: Path) -> None:
    """On a file system of one megabyte, which bubblewrap makes."""
    full = ["bwrap", "--dev-bind", "/", "/", "--size", "1000000", "--tmpfs", str(tmp_path)]
    make = "import sys, pathlib; from autocoder.local import toolchain;"
    make += "toolchain._cache = lambda: pathlib.Path(sys.argv[1]);"
    make += "toolchain.ensure_toolchain(print)"
    result = subprocess.run(
        [*full, sys.executable, "-c", make, str(tmp_path)], capture_output=True, text=True
    )
    last = result.stderr.strip().splitlines()[-1]
    assert f"can't be put into {tmp_path}: " in last
    assert "No space left on device" in last
    assert "0.6 GB" in last


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "_NODE", "no-such-package")
    with pytest.raises(toolchain.ToolchainError, match="pip install no-such-package"):
        toolchain.ensure_toolchain(print)
