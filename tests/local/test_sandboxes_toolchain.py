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
    assert names(tmp_path / "cache") == [".lock", folders[0].name]
    assert len(said) == 1  # only one of them made it

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


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_new_one_replaces_those_that_nobody_uses_and_what_killed_makers_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, "_cache", lambda: tmp_path)
    monkeypatch.setattr(toolchain, "_fingerprint", lambda: "new")
    monkeypatch.setattr(toolchain, "_make", lambda folder: (folder / "bin").mkdir())
    for name in ("toolchain-used", "toolchain-old", ".toolchain-draft"):
        (tmp_path / name / "bin").mkdir(parents=True)
    use = "import sys, pathlib; from autocoder.local import toolchain;"
    use += "print(toolchain._use(pathlib.Path(sys.argv[1])), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", use, str(tmp_path / "toolchain-used")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as user:
        assert user.stdout and user.stdout.readline() == "True\n"
        made = toolchain.ensure_toolchain(lambda line: None)
        assert names(tmp_path) == [".lock", "toolchain-new", "toolchain-used"]
        user.communicate("\n")
    monkeypatch.setattr(toolchain, "_fingerprint", lambda: "newer")
    toolchain.ensure_toolchain(lambda line: None)
    assert names(tmp_path) == [".lock", "toolchain-new", "toolchain-newer"]  # both are used here
    assert (made / "bin").is_dir()


def test_one_that_was_removed_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, "_cache", lambda: tmp_path)
    monkeypatch.setattr(toolchain, "_make", lambda folder: (folder / "bin").mkdir())
    for _ in range(2):
        made = toolchain.ensure_toolchain(lambda line: None)
        assert (made / "bin").is_dir()
        shutil.rmtree(made)


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
