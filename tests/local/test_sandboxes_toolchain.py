"""The folder of tools is made once, whole, and for everyone to read."""

import shutil
import stat
import subprocess
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


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "_NODE", "no-such-package")
    with pytest.raises(toolchain.ToolchainError, match="pip install no-such-package"):
        toolchain.ensure_toolchain(print)
