"""What a process in a task's sandbox can reach, at each stage of the task."""

import json
from collections.abc import Iterator

import pytest

from autocoder.errors import ConfigurationError, SandboxLost
from autocoder.sandbox.client import SandboxHandle
from autocoder.sandbox.egress import PLACEHOLDER, Egress
from autocoder.services import Services
from functions import create_sandbox, run_claude_code, test_and_build
from tests.steps.builders import new_id, queued
from tests.world import World, never

# What a process gets from the model: the status of an answer, or "refused".
ASK_MODEL = """
import os, urllib.error, urllib.request
request = urllib.request.Request(
    os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages",
    data=b'{"messages": []}',
    headers={"x-api-key": os.environ["ANTHROPIC_API_KEY"]},
)
try:
    print(urllib.request.urlopen(request).status)
except urllib.error.HTTPError as error:
    print(error.code)
except OSError:
    print("refused")
"""
HEARD = "400"  # the gateway knows who asks, and finds no prompt in what it asks
ASK_OTHER = "import urllib.request; urllib.request.urlopen('https://example.test/')"
WRITE_PROBE = [
    {"tool": "Write", "input": {"file_path": "probe.py", "content": ASK_MODEL}},
    {"tool": "Bash", "input": {"command": "python3 probe.py > during_the_run"}},
]


@pytest.fixture
def box(world: World, services: Services) -> Iterator[SandboxHandle]:
    task = new_id("egress")
    world.add_scenario(task, [[{"text": "Done."}]])
    name = f"{task}-1"
    made = services.sandboxes.create(name, 1)
    made.write("ask.py", ASK_MODEL)
    yield made
    services.sandboxes.kill_all(name)


def answer(box: SandboxHandle) -> str:
    return str(box.sandbox.commands.run("python3 ask.py").stdout).strip()


def test_a_new_sandbox_can_not_reach_the_model(box: SandboxHandle) -> None:
    assert answer(box) == "refused"


def test_the_model_is_let_in_and_out_as_often_as_needed(box: SandboxHandle) -> None:
    for _ in range(2):
        box.admit_model()
        assert answer(box) == HEARD
        box.withdraw_model()
        assert answer(box) == "refused"


def test_a_connection_that_was_open_before_is_of_no_use_after(box: SandboxHandle) -> None:
    box.write(
        "hold.py",
        """
import http.client, os, pathlib, time, urllib.parse
host = urllib.parse.urlsplit(os.environ["ANTHROPIC_BASE_URL"]).netloc
connection = http.client.HTTPConnection(host)
for wait in (None, "go"):
    while wait and not pathlib.Path(wait).exists():
        time.sleep(0.05)
    headers = {"x-api-key": os.environ["ANTHROPIC_API_KEY"]}
    connection.request("POST", "/v1/messages", b'{"messages": []}', headers)
    response = connection.getresponse()
    response.read()
    print(response.status)
    pathlib.Path("asked").touch()
""",
    )
    box.admit_model()
    handle = box.sandbox.commands.run("python3 hold.py", background=True, timeout=60)
    box.sandbox.commands.run("while [ ! -e asked ]; do sleep 0.05; done")
    box.withdraw_model()
    box.write("go", "")
    assert handle.wait().stdout.split() == [HEARD, "403"]


@pytest.mark.parametrize("model", [True, False])
def test_other_hosts_are_never_reached(box: SandboxHandle, model: bool) -> None:
    if model:
        box.admit_model()
    result = box.sandbox.commands.run(f'python3 -c "{ASK_OTHER}" 2>&1 || true')
    assert "403" in result.stdout


def test_the_whole_network_is_replaced_each_time(box: SandboxHandle, services: Services) -> None:
    egress = services.settings.egress
    box.admit_model()
    network = box.sandbox.get_info().network
    assert network is not None
    assert network["allow_out"] == [egress.model_host, *egress.package_hosts]
    assert network["deny_out"] == ["0.0.0.0/0"]
    assert network["dns_servers"] == []
    headers = network["rules"][egress.model_host][0]["transform"]["headers"]
    assert headers == {"x-api-key": f"${{e2b.secrets.{egress.injected_secret}}}"}
    box.withdraw_model()
    network = box.sandbox.get_info().network
    assert network is not None
    assert network["allow_out"] == list(egress.package_hosts)
    assert (network["deny_out"], network["dns_servers"]) == (["0.0.0.0/0"], [])
    assert not network.get("rules")


def test_the_agent_reaches_the_model_and_the_checks_do_not(
    world: World, services: Services
) -> None:
    check = "python3 probe.py > during_checks; cat during_the_run during_checks"
    state = queued(services, "egress", checks={"probe": check})
    world.add_scenario(state.task_id, [WRITE_PROBE, [{"text": "Nothing."}]])
    state = state.model_copy(update={"sandbox": create_sandbox.run(state, services)})
    state = state.model_copy(update={"run": run_claude_code.run(state, services, never)})
    test_and_build.run(state, services, never)
    log = services.objects.read(f"tasks/{state.task_id}/iterations/01/logs/probe.log").decode()
    assert log.split() == [HEARD, "refused"]
    # An agent's next run has it again.
    assert state.sandbox
    box = services.sandboxes.connect(state.sandbox.sandbox_id)
    box.admit_model()
    box.write("ask.py", ASK_MODEL)
    assert answer(box) == HEARD
    services.sandboxes.kill_all(state.name)


def test_a_lost_sandbox_is_known_by_its_network_too(services: Services) -> None:
    name = f"{new_id('lost')}-1"
    box = services.sandboxes.create(name, 1)
    services.sandboxes.kill_all(name)
    with pytest.raises(SandboxLost):
        box.withdraw_model()


def test_without_a_way_for_the_key_no_sandbox_is_made(world: World) -> None:
    services = world.services(egress=Egress())
    with pytest.raises(ConfigurationError) as refused:
        services.sandboxes.create("nokey-1", 1)
    assert refused.value.code == "model_not_configured"


def test_the_key_is_in_the_environment_only_where_that_was_chosen() -> None:
    injected = Egress(injected_secret="held-by-e2b")
    assert injected.variables(None)["ANTHROPIC_API_KEY"] == PLACEHOLDER
    assert "sk-test" not in json.dumps(injected.with_model("${e2b.secrets.held-by-e2b}"))
    chosen = Egress(key_in_sandbox=True)
    assert chosen.variables("sk-test")["ANTHROPIC_API_KEY"] == "sk-test"
    assert chosen.with_model(None)["rules"] == {chosen.model_host: [{}]}
