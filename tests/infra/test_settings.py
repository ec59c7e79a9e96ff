"""cdk.json as a deployer edits it: what is refused, and in which words."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from infra.settings import ROOT, Settings, SettingsError, context

NO_HOSTS = ["*.example.com", "https://example.com", "example.com:8080", "*", "localhost"]
NO_HOSTS += ["10.0.0.1", "-a.example.com", "a..example.com", "Example.com", ""]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return Path(shutil.copy(ROOT / "cdk.json", tmp_path))


def change(file: Path, **settings: Any) -> None:
    content = json.loads(file.read_text())
    content["context"]["autocoder"] |= settings
    file.write_text(json.dumps(content))


def test_the_file_that_is_shipped_is_valid_and_a_stage_may_be_named() -> None:
    assert Settings.load().stack_name == "Autocoder-main"
    assert Settings.load("test").stack_name == "Autocoder-test"


@pytest.mark.parametrize(
    ("setting", "wrong"),
    [
        ("stage", "No Stage"),
        ("stage", "test-"),
        ("stage", ""),
        ("max_running", 0),
        ("max_running", "many"),
        ("retention_days", 3654),
        ("model", "sonnet"),
        ("model", ""),
        ("e2b_template", "autocoder:latest"),
        ("e2b_template", ""),
        ("e2b_secret_name", ""),
        ("anthropic_secret_name", "a secret"),
        ("injected_secret_name", "a}b"),
        ("key_in_sandbox", "perhaps"),
        ("sandbox_memory_mb", 2049),
        ("sandbox_languages", "go"),
        *(("model_host", host) for host in NO_HOSTS),
    ],
)
def test_a_value_that_can_not_work_is_named_with_the_rule_it_breaks(
    file: Path, setting: str, wrong: Any
) -> None:
    change(file, **{setting: wrong})
    with pytest.raises(SettingsError) as refused:
        Settings.load(file=file)
    (sentence,) = str(refused.value).splitlines()
    assert sentence.startswith(f"cdk.json: autocoder.{setting}: must ")
    assert json.dumps(wrong) in sentence
    assert "pydantic" not in sentence and "Input" not in sentence


def test_every_wrong_setting_gets_a_sentence(file: Path) -> None:
    change(file, extra_hosts=["a.example.com", "*"], max_runing=3, retention_days=0)
    with pytest.raises(SettingsError) as refused:
        Settings.load(file=file)
    days, host, unknown = str(refused.value).splitlines()
    assert days.startswith("cdk.json: autocoder.retention_days: must be greater than or equal to 1")
    assert host.startswith("cdk.json: autocoder.extra_hosts.1: must be a host's full name")
    assert unknown.startswith("cdk.json: autocoder.max_runing: is no setting; remove it")


def test_two_keys_need_two_secrets(file: Path) -> None:
    change(file, e2b_secret_name="both", anthropic_secret_name="both")
    with pytest.raises(SettingsError, match="must be two secrets"):
        Settings.load(file=file)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{not JSON", "can't be read as a JSON object"),
        ("[]", "can't be read as a JSON object"),
        ("{}", "context: is missing"),
        ('{"context": {}}', "context.autocoder: is missing"),
        ('{"context": {"autocoder": []}}', "context.autocoder: is missing or no object"),
        ('{"context": {"autocoder": {}}}', "autocoder.stage: is missing; add it"),
    ],
)
def test_a_file_that_is_not_cdks_is_a_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "cdk.json"
    file.write_text(text)
    with pytest.raises(SettingsError) as refused:
        Settings.load(file=file)
    assert sentence in str(refused.value)


def synthesize(folder: Path, stage: str, **env: str) -> "subprocess.CompletedProcess[str]":
    """Run app.py with `-c stage=…`, as the CLI hands it on."""
    own = json.dumps({**context(), "stage": stage})
    environment = {**os.environ, "CDK_OUTDIR": str(folder), "CDK_CONTEXT_JSON": own, **env}
    return subprocess.run(
        [sys.executable, "app.py"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )


@pytest.mark.parametrize("stage", ["", "Test", "test-"])
def test_a_stage_that_can_not_be_is_refused(stage: str) -> None:
    with pytest.raises(SettingsError, match=r"autocoder.stage: must be 1 to 20 of"):
        Settings.load(stage)


def test_settings_that_can_not_be_are_a_sentence_at_synth(tmp_path: Path) -> None:
    done = synthesize(tmp_path / "out", "Test")
    assert done.returncode == 2
    assert done.stderr.startswith("cdk.json: autocoder.stage: must be 1 to 20 of")
    assert "Traceback" not in done.stderr


def test_a_synth_says_what_sandboxes_reach_and_what_must_come_first(tmp_path: Path) -> None:
    unreachable = "http://localhost:3141/simple"
    done = synthesize(tmp_path / "out", "test", PIP_EXTRA_INDEX_URL=unreachable)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "Autocoder-test.template.json").exists()
    assert f"warning: The registry {unreachable} is left out: it is on this" in done.stderr
    assert "note: sandboxes may reach " in done.stderr
    assert "api.anthropic.com while the agent runs" in done.stderr
    assert "run `autocoder setup --stage test` before you deploy" in done.stderr
