"""The key of this machine: one for all local clouds of a user, and for nobody else."""

import stat
from pathlib import Path

import pytest

from autocoder.cli.verify import named_key
from autocoder.evidence import fingerprint
from autocoder.local.signing import load, public_key_file, signing_key
from autocoder.local.state import LocalCloudError
from tests.steps.test_evidence import DER


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder that is not there yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "autocoder"


def test_the_key_is_made_once_and_its_public_half_is_what_verify_takes(home: Path) -> None:
    made = signing_key()
    content = made.read_bytes()
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    public_key_file().unlink()
    assert signing_key() == made
    assert made.read_bytes() == content
    public = load(made).public_key().public_bytes(*DER)
    assert named_key(str(public_key_file())) == fingerprint(public)
    assert sorted(path.name for path in home.iterdir()) == ["evidence.key", "evidence.pem"]


def test_what_is_no_key_is_named(home: Path) -> None:
    signing_key().write_text("no key")
    with pytest.raises(LocalCloudError, match=r"evidence\.key holds no key.*remove it"):
        signing_key()


def test_a_folder_that_can_not_be_used_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc")
    with pytest.raises(LocalCloudError, match="Name another place in XDG_STATE_HOME"):
        signing_key()
