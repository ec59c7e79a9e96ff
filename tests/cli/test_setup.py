"""`autocoder setup` against the local cloud's servers: what it leaves, and what it never says."""

import contextlib
import json
import os
import pty
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import e2b
import pytest

from autocoder.sandbox.egress import Egress
from infra.settings import ROOT, Settings
from infra.template import COMMANDS, fingerprint, link_commands, template
from tests.world import World

ANTHROPIC, E2B = "sk-ant-test-0123456789", "e2b_" + "f" * 40


@pytest.fixture(scope="module")
def settings() -> Settings:
    chosen = json.loads((ROOT / "cdk.json").read_text())["context"]["autocoder"]
    return Settings.model_validate(chosen)


def run_setup(world: World, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a user does, without a terminal."""
    environment = {**os.environ, **world.environment(), **env}
    command = [str(Path(sys.executable).parent / "autocoder"), "setup", *args]
    return subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def keys(anthropic: str = ANTHROPIC, key: str = E2B) -> dict[str, str]:
    return {"ANTHROPIC_API_KEY": anthropic, "E2B_API_KEY": key}


def secret(world: World, name: str) -> str:
    return str(world.client("secretsmanager").get_secret_value(SecretId=name)["SecretString"])


def assert_no_key(done: subprocess.CompletedProcess[str]) -> None:
    for key in (ANTHROPIC, E2B):
        assert key not in done.stdout + done.stderr
        assert key[8:] not in done.stdout + done.stderr


def test_an_account_is_made_ready_and_again_without_harm(world: World, settings: Settings) -> None:
    # Given nothing but two keys, when setup runs, then both are stored and every check holds.
    done = run_setup(world, "--from-env", **keys())
    assert done.returncode == 0, done.stdout + done.stderr
    assert secret(world, settings.anthropic_secret_name) == ANTHROPIC
    assert secret(world, settings.e2b_secret_name) == E2B
    assert "FAILED" not in done.stdout
    assert done.stdout.count("        ok  ") == 6
    assert_no_key(done)
    api: Any = {"api_key": E2B, "api_url": world.sandbox_urls["api_url"]}
    first = e2b.Secret.get_info(settings.injected_secret_name, **api)
    tags = [tag.tag for tag in e2b.Template.get_tags(settings.e2b_template, **api)]
    assert len(tags) == 1  # no tag that another stage's set-up could move

    # When it runs again without any key, then those that are stored are used and nothing is built.
    again = run_setup(world, "--from-env", **keys("", ""))
    assert again.returncode == 0, again.stdout + again.stderr
    assert again.stdout.count(": unchanged") == 2
    assert f"{settings.e2b_template}: current" in again.stdout
    assert "building" not in again.stdout
    assert_no_key(again)

    # When the Anthropic key is rotated, then Secrets Manager and E2B both have a new version.
    rotated = run_setup(world, "--from-env", **keys(ANTHROPIC + "9"))
    assert rotated.returncode == 0
    assert secret(world, settings.anthropic_secret_name) == ANTHROPIC + "9"
    assert e2b.Secret.get_info(settings.injected_secret_name, **api).version > first.version
    assert e2b.Sandbox.list(**api).next_items() == []  # the check's sandbox is gone


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        ({"E2B_API_URL": "http://127.0.0.1:9"}, "Check E2B_API_KEY"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "Could not connect"),
        ({"AWS_PROFILE": "nobody"}, "nobody"),
        (keys(E2B, ANTHROPIC), "mixed up"),
        (keys(f"{ANTHROPIC} x"), "copy it again"),
    ],
)
def test_what_goes_wrong_is_a_sentence_without_a_key(
    world: World, env: dict[str, str], sentence: str
) -> None:
    done = run_setup(world, "--from-env", **{**keys(), "AWS_MAX_ATTEMPTS": "1", **env})
    assert done.returncode == 2, done.stdout + done.stderr
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert_no_key(done)


def test_a_key_that_is_nowhere_is_named(world: World, settings: Settings) -> None:
    client = world.client("secretsmanager")
    name = settings.anthropic_secret_name
    if any(found["Name"] == name for found in client.list_secrets()["SecretList"]):
        client.delete_secret(SecretId=name, ForceDeleteWithoutRecovery=True)
    done = run_setup(world, "--from-env", **keys("", E2B))
    assert done.returncode == 2
    assert "there is no ANTHROPIC_API_KEY" in done.stderr


def test_keys_are_asked_for_in_a_terminal_and_not_shown(world: World, settings: Settings) -> None:
    master, slave = pty.openpty()
    environment = {**os.environ, **world.environment()}
    with subprocess.Popen(
        [str(Path(sys.executable).parent / "autocoder"), "setup"],
        env={k: v for k, v in environment.items() if k not in keys()},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    ) as process:
        os.close(slave)
        shown = b""
        for question, key in keys().items():
            # The space comes after the terminal was told not to echo, and to forget what was typed.
            while question.encode() not in shown or not shown.endswith(b": "):
                shown += os.read(master, 1024)
            os.write(master, f"{key}\n".encode())
        with contextlib.suppress(OSError):  # how Linux says that the other side is closed
            while more := os.read(master, 1024):
                shown += more
        assert process.wait(60) == 0, shown
    os.close(master)
    assert ANTHROPIC.encode() not in shown
    assert E2B.encode() not in shown
    assert secret(world, settings.anthropic_secret_name) == ANTHROPIC


def test_the_template_pins_what_the_laptop_runs_and_knows_every_host() -> None:
    egress = Egress(package_hosts=("packages.example.com",), injected_secret="held")
    text = e2b.Template.to_json(template(egress))
    assert f"claude-agent-sdk=={version('claude-agent-sdk')}" in text
    assert "192.0.2.1 api.anthropic.com packages.example.com" in text


def test_another_host_or_size_is_another_template() -> None:
    one, other = Egress(), Egress(package_hosts=("packages.example.com",))
    assert fingerprint(template(one), 2, 4096) == fingerprint(template(one), 2, 4096)
    assert fingerprint(template(one), 2, 4096) != fingerprint(template(one), 4, 4096)
    assert fingerprint(template(one), 2, 4096) != fingerprint(template(other), 2, 4096)


def test_the_templates_commands_work_on_the_pinned_wheels(tmp_path: Path) -> None:
    venv = Path(sys.executable).parent
    script = " && ".join(link_commands(str(tmp_path)))
    done = subprocess.run(
        ["/bin/sh", "-c", script],
        env={"PATH": f"{venv}:/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert {path.name for path in tmp_path.iterdir() if path.is_symlink()} == set(COMMANDS)
    assert "(Claude Code)" in done.stdout
