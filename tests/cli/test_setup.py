"""`autocoder setup` against the local cloud's servers: what it leaves, and what it never says."""

import contextlib
import fcntl
import json
import os
import pty
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import Any

import e2b
import pytest

from autocoder.cli.doctor import Account, CheckFailedError, functions_may_run
from autocoder.cli.setup import open_session
from autocoder.local.state import REGION
from autocoder.sandbox.egress import Egress
from infra.settings import Settings
from infra.template import COMMANDS, fingerprint, link_commands, template
from tests.faults.proxy import Rule, faults, reply
from tests.world import World

LANGUAGES = ["python", "node"]

ANTHROPIC, E2B = "sk-ant-test-0123456789", "e2b_" + "f" * 40
ROTATED = ANTHROPIC + "9"
COMMAND = [str(Path(sys.executable).parent / "autocoder"), "setup"]

Done = subprocess.CompletedProcess[str]
SetUp = Callable[..., Done]


class Anthropic(BaseHTTPRequestHandler):
    """Anthropic's API as far as a key can be tried there: it knows its keys."""

    def do_GET(self) -> None:
        known = self.headers["x-api-key"] in (ANTHROPIC, ROTATED)
        asked = self.path == "/v1/models" and self.headers["anthropic-version"]
        self.send_response((200 if known else 401) if asked else 404)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Stay quiet."""


@pytest.fixture(scope="module")
def environment(world: World) -> Iterator[dict[str, str]]:
    """The environment of a user whose services are on loopback, and who has no key in it."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Anthropic) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        inherited = {k: v for k, v in os.environ.items() if k not in keys()}
        url = f"http://127.0.0.1:{server.server_port}"
        yield {**inherited, **world.environment(), "ANTHROPIC_BASE_URL": url}
        server.shutdown()


@pytest.fixture(scope="module")
def set_up(environment: dict[str, str]) -> SetUp:
    """Run the command as a user does, without a terminal."""

    def run(*args: str, **env: str) -> Done:
        return subprocess.run(
            [*COMMAND, "--from-env", *args],
            env={**environment, **env},
            capture_output=True,
            text=True,
            timeout=100,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    return run


@pytest.fixture(scope="module")
def settings() -> Settings:
    return Settings.load()


@pytest.fixture
def nothing_stored(world: World, settings: Settings) -> None:
    client = world.client("secretsmanager")
    for name in (settings.anthropic_secret_name, settings.e2b_secret_name):
        with contextlib.suppress(client.exceptions.ResourceNotFoundException):
            client.delete_secret(SecretId=name, ForceDeleteWithoutRecovery=True)


def keys(anthropic: str = ANTHROPIC, key: str = E2B) -> dict[str, str]:
    return {"ANTHROPIC_API_KEY": anthropic, "E2B_API_KEY": key}


def secret(world: World, name: str) -> str:
    return str(world.client("secretsmanager").get_secret_value(SecretId=name)["SecretString"])


def stored(world: World) -> set[str]:
    """The names of the secrets that this deployment has."""
    found = world.client("secretsmanager").list_secrets()["SecretList"]
    return {entry["Name"] for entry in found if entry["Name"].startswith("autocoder/")}


def assert_no_key(done: Done) -> None:
    for key in (ANTHROPIC, E2B):
        assert key not in done.stdout + done.stderr
        assert key[8:] not in done.stdout + done.stderr


def assert_refused(done: Done, *sentences: str) -> None:
    assert done.returncode == 2, done.stdout + done.stderr
    for sentence in sentences:
        assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert_no_key(done)


def refusal(status: str) -> str:
    """An error as E2B words it."""
    return reply(status, json.dumps({"code": int(status[:3]), "message": "no"}))


def test_an_account_is_made_ready_and_again_without_harm(
    world: World, settings: Settings, set_up: SetUp, nothing_stored: None
) -> None:
    # Given nothing but two keys, when setup runs, then both are stored and every check holds.
    done = set_up(**keys())
    assert done.returncode == 0, done.stdout + done.stderr
    assert secret(world, settings.anthropic_secret_name) == ANTHROPIC
    assert secret(world, settings.e2b_secret_name) == E2B
    assert "FAILED" not in done.stdout
    assert done.stdout.count("        ok  ") == 11
    assert_no_key(done)
    assert done.stdout.lstrip().startswith("AWS  account ")  # before anything is done there
    api: Any = {"api_key": E2B, "api_url": world.sandbox_urls["api_url"]}
    first = e2b.Secret.get_info(settings.injected_secret_name, **api)
    tags = [tag.tag for tag in e2b.Template.get_tags(settings.e2b_template, **api)]
    assert len(tags) == 1  # no tag that another stage's set-up could move

    # When it runs again without any key, then those that are stored are used and nothing is built.
    again = set_up()
    assert again.returncode == 0, again.stdout + again.stderr
    assert again.stdout.count(": unchanged") == 2
    assert f"{settings.e2b_template}: current" in again.stdout
    assert "building" not in again.stdout
    assert_no_key(again)

    # When the Anthropic key is rotated, then Secrets Manager and E2B both have a new version.
    rotated = set_up("--stage", "test", **keys(ROTATED))
    assert rotated.returncode == 0
    assert "Autocoder-test" in rotated.stdout
    assert secret(world, settings.anthropic_secret_name) == ROTATED
    latest = e2b.Secret.get_info(settings.injected_secret_name, **api)
    assert latest.version > first.version
    assert e2b.Sandbox.list(**api).next_items() == []  # the check's sandbox is gone

    # When it is rotated to one that Anthropic refuses, then the one that works stays.
    refused = set_up(**keys("sk-ant-mistyped"))
    assert_refused(refused, "ANTHROPIC_API_KEY was refused", "Nothing was stored")
    assert secret(world, settings.anthropic_secret_name) == ROTATED
    assert e2b.Secret.get_info(settings.injected_secret_name, **api).version == latest.version


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        ({"E2B_API_URL": "http://127.0.0.1:9"}, "check the network"),
        ({"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}, "did not answer"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "Could not connect"),
        ({"AWS_PROFILE": "nobody"}, "nobody"),
        ({"AWS_DEFAULT_REGION": "", "AWS_CONFIG_FILE": "/dev/null"}, "set AWS_REGION"),
        (keys(E2B, ANTHROPIC), "mixed up"),
        (keys(f"{ANTHROPIC} x"), "copy it again"),
        (keys("", E2B), "there is no ANTHROPIC_API_KEY"),
    ],
)
def test_what_goes_wrong_is_a_sentence_and_nothing_is_stored(
    world: World, set_up: SetUp, nothing_stored: None, env: dict[str, str], sentence: str
) -> None:
    assert_refused(set_up(**{**keys(), "AWS_MAX_ATTEMPTS": "1", **env}), sentence)
    assert stored(world) == set()


def test_without_credentials_nobody_is_asked_for_a_key(set_up: SetUp, tmp_path: Path) -> None:
    nobody = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "HOME": str(tmp_path)}
    done = set_up(AWS_EC2_METADATA_DISABLED="true", **nobody)
    assert_refused(done, "there are no AWS credentials: log in as for the aws CLI")


@pytest.mark.parametrize(
    ("request_line", "answer", "sentence"),
    [
        ("GET /v2/sandboxes", refusal("401 Unauthorized"), "E2B refused the key"),
        (
            "GET /v2/sandboxes",
            reply("500 Internal Server Error", "no JSON"),
            "try again in a minute",
        ),
        ("GET /v2/sandboxes", reply("200 OK", '[{"odd": 1}]'), "not what its SDK expects"),
        (" /secrets", refusal("403 Forbidden"), "set key_in_sandbox"),
        ("GET /v2/sandboxes", refusal("429 Too Many Requests"), "try again in a minute"),
        (" /secrets", refusal("404 Not Found"), "carry it off"),
        (" /secrets", reply("502 Bad Gateway", "<html>"), "try again in a minute"),
    ],
)
def test_a_refusal_of_e2b_comes_with_the_remedy_of_its_kind(
    world: World, set_up: SetUp, nothing_stored: None, request_line: str, answer: str, sentence: str
) -> None:
    with faults(world.sandbox_urls["api_url"]) as proxy:
        proxy.fail(Rule(request_line, times=99, answer=answer))
        assert_refused(set_up(**keys(), E2B_API_URL=proxy.url), sentence)
    assert bool(stored(world)) == (request_line == " /secrets")  # a key is tried before


def test_a_secret_that_is_being_deleted_can_be_taken_back(
    world: World, settings: Settings, set_up: SetUp, nothing_stored: None
) -> None:
    client, name = world.client("secretsmanager"), settings.e2b_secret_name
    client.create_secret(Name=name, SecretString=E2B)
    client.delete_secret(SecretId=name)
    assert_refused(set_up(**keys()), f"restore-secret --secret-id {name}", "30 days")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [({"SecretBinary": E2B.encode()}, "is binary"), ({"SecretString": '{"key": "x"}'}, "JSON")],
)
def test_a_secret_made_by_hand_in_another_form_is_refused_and_kept(
    world: World,
    settings: Settings,
    set_up: SetUp,
    nothing_stored: None,
    content: dict[str, Any],
    sentence: str,
) -> None:
    name = settings.e2b_secret_name
    world.client("secretsmanager").create_secret(Name=name, **content)
    assert_refused(set_up(**keys()), name, sentence, "Plaintext")
    assert stored(world) == {name}


def test_the_region_is_chosen_as_the_cdk_cli_chooses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    assert open_session(None, None).region_name == "eu-west-1"
    monkeypatch.setenv("AWS_REGION", "eu-west-2")
    assert open_session(None, None).region_name == "eu-west-2"
    assert open_session(None, "eu-west-3").region_name == "eu-west-3"


def test_an_account_that_lets_too_few_functions_run_is_found(
    world: World, settings: Settings
) -> None:
    account = Account(world.client, REGION, settings)
    assert functions_may_run(account).startswith("1000 functions")
    account.settings = settings.model_copy(update={"max_running": 981})
    with pytest.raises(CheckFailedError, match="981 tasks need 1001"):
        functions_may_run(account)


class Terminal:
    """The command in a terminal of its own."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.master, slave = pty.openpty()
        self.shown = b""
        self.process = subprocess.Popen(
            COMMAND,
            env=environment,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(slave, termios.TIOCSCTTY, 0),
        )
        os.close(slave)

    def answer(self, question: str, text: str) -> None:
        """Wait for a question, and type."""
        # The space comes after the terminal was told not to echo, and to forget what was typed.
        while question.encode() not in self.shown or not self.shown.endswith(b": "):
            self.shown += os.read(self.master, 1024)
        self.before, self.shown = self.shown, b""
        os.write(self.master, text.encode())

    def end(self) -> tuple[int, str]:
        """Wait for the end; give the exit code and what was shown since the last answer."""
        with contextlib.suppress(OSError):  # how Linux says that the other side is closed
            while more := os.read(self.master, 1024):
                self.shown += more
        os.close(self.master)
        return self.process.wait(60), self.shown.decode()


def test_keys_are_asked_for_in_a_terminal_and_not_shown(
    world: World, settings: Settings, environment: dict[str, str], nothing_stored: None
) -> None:
    terminal = Terminal(environment)
    terminal.answer("ANTHROPIC_API_KEY (hidden)", "\n")
    terminal.answer("none is stored yet", f"{ANTHROPIC}\n")
    terminal.answer("E2B_API_KEY (hidden)", f"{E2B}\n")
    code, shown = terminal.end()
    assert code == 0, shown
    assert ANTHROPIC not in shown and E2B not in shown
    assert ANTHROPIC not in terminal.before.decode()
    assert secret(world, settings.anthropic_secret_name) == ANTHROPIC

    # Enter keeps what is stored, and Ctrl-C at a question ends it as it ends `run`.
    terminal = Terminal(environment)
    terminal.answer("ANTHROPIC_API_KEY (hidden; Enter keeps the stored one)", "\n")
    terminal.answer("E2B_API_KEY", "\x03")
    code, shown = terminal.end()
    assert code == 130, shown
    assert "Interrupted" in shown
    assert "Traceback" not in shown


def test_the_template_pins_what_the_laptop_runs_and_knows_every_host() -> None:
    egress = Egress(package_hosts=("packages.example.com",), injected_secret="held")
    text = e2b.Template.to_json(template(egress, LANGUAGES))
    assert f"claude-agent-sdk=={version('claude-agent-sdk')}" in text
    assert "192.0.2.1 api.anthropic.com packages.example.com" in text


def test_the_template_has_the_languages_that_are_asked_for() -> None:
    plain, more = (
        template(Egress(), LANGUAGES),
        template(Egress(), ["python", "node", "go", "rust"]),
    )
    assert not any(name in e2b.Template.to_json(plain) for name in ("golang-go", "cargo"))
    assert all(name in e2b.Template.to_json(more) for name in ("golang-go", "cargo"))
    assert fingerprint(plain, 2, 4096) != fingerprint(more, 2, 4096)


def test_another_host_or_size_is_another_template() -> None:
    one, other = Egress(), Egress(package_hosts=("packages.example.com",))
    assert fingerprint(template(one, LANGUAGES), 2, 4096) == fingerprint(
        template(one, LANGUAGES), 2, 4096
    )
    assert fingerprint(template(one, LANGUAGES), 2, 4096) != fingerprint(
        template(one, LANGUAGES), 4, 4096
    )
    assert fingerprint(template(one, LANGUAGES), 2, 4096) != fingerprint(
        template(other, LANGUAGES), 2, 4096
    )


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
