"""The shared local cloud, as commands find one: written down where its owner would."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from autocoder.local.assembly import ROOT
from autocoder.local.cloud import LocalCloud
from autocoder.local.running import Running, owner

if TYPE_CHECKING:
    from tests.cli.lab import Lab

AUTOCODER = Path(sys.executable).with_name("autocoder")
# Nothing of the caller's: no account, no key, no terminal.
KEPT = ("PATH", "LANG", "LC_ALL", "TMPDIR", "HOME")


class Caller:
    """Somebody who calls commands; `environment` is all that they have."""

    def __init__(self, state: Path) -> None:
        self.environment = {name: os.environ[name] for name in KEPT if name in os.environ}
        self.environment |= {
            "XDG_STATE_HOME": str(state),
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "PYTHONIOENCODING": "utf-8",
        }

    def call(self, *args: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [str(AUTOCODER), *args],
            cwd=ROOT,
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=100,
        )

    def refused(self, *args: str) -> str:
        """What a call says that can't work: one sentence on stderr, nothing else."""
        done = self.call(*args)
        assert (done.returncode, done.stdout) == (2, ""), done
        assert done.stderr.startswith("autocoder: ")
        assert "Traceback" not in done.stderr
        return done.stderr.removeprefix("autocoder: ").rstrip("\n")


@pytest.fixture(scope="session")
def state(cloud: LocalCloud, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A user's state folder, in which the shared cloud is written down."""
    folder = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder))
        held = owner()
        write = held.__enter__()
        write(Running.of(cloud, "replayed"))
    yield folder
    held.__exit__(None, None, None)


@pytest.fixture
def caller(state: Path) -> Caller:
    """Somebody whose local cloud is running."""
    return Caller(state)


@pytest.fixture
def stranger(tmp_path: Path) -> Caller:
    """Somebody who has no local cloud."""
    return Caller(tmp_path / "state")


@pytest.fixture
def lab(cloud: LocalCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator["Lab"]:
    """A place of its own in the shared cloud, also for what a test does in this process."""
    from tests.cli.lab import Lab

    for name, value in cloud.function_environment().items():
        monkeypatch.setenv(name, value)
    made = Lab(cloud, tmp_path)
    yield made
    for info in made.sandboxes().all():
        made.sandboxes().kill(info.sandbox_id)
