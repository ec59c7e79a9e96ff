"""The clean room: the project and nothing else, and tests that the agent never saw."""

import io
import json
import tarfile
from typing import Any

import e2b
import pytest

from autocoder.errors import InputError, SandboxLost
from autocoder.ports.objects import TaskFolder
from autocoder.services import Services, TimeIsUp
from autocoder.task import State
from functions import create_sandbox, decide_next, run_claude_code, test_and_build, verify_clean
from tests.steps.builders import new_id, queued, take_in
from tests.world import World, at_once, never

TEST = "from a import A\n\n\ndef test_a():\n    assert A == 1\n"
HIDDEN = "from a import A\n\n\ndef test_hidden():\n    secret_source = 2\n    assert A == 2\n"


def write(path: str, content: str) -> dict[str, Any]:
    return {"tool": "Write", "input": {"file_path": path, "content": content}}


GREEN = [write("a.py", "A = 1\n"), write("test_a.py", TEST)]


def after(looks: int) -> TimeIsUp:
    """A deadline that comes after so many looks at the clock."""
    left = iter([False] * looks)
    return lambda: next(left, True)


def checked(state: State, services: Services) -> State:
    """Run the agent and the checks, which are green, and decide."""
    state = state.model_copy(update={"run": run_claude_code.run(state, services, never)})
    state = state.model_copy(update={"checks": test_and_build.run(state, services, never)})
    assert state.checks and state.checks.green
    return decided(state, services)


def decided(state: State, services: Services) -> State:
    return state.model_copy(update={"decision": decide_next.run(state, services)})


def verified(state: State, services: Services) -> State:
    """Go through the clean room, and decide again."""
    state = state.model_copy(update={"clean": verify_clean.run(state, services, never)})
    return decided(state, services)


def clean_report(state: State, services: Services) -> dict[str, Any]:
    key = TaskFolder(state.task_id).clean_room(1)
    return {check["name"]: check for check in services.objects.read_json(key)["checks"]}


def test_green_goes_through_the_clean_room_before_it_has_succeeded(
    world: World, services: Services, begun: Any
) -> None:
    state = checked(begun("clean", [GREEN]), services)
    assert state.decision and state.decision.next == "verify"
    asked = len(world.model_requests(state.task_id))
    state = verified(state, services)
    assert state.decision and state.decision.next == "finish"
    assert clean_report(state, services)["test"]["tests"] == {
        "ran": 1,
        "failed": 0,
        "skipped": 0,
        "xfailed": 0,
        "deselected": 0,
    }
    assert len(world.model_requests(state.task_id)) == asked  # no model call
    assert services.sandboxes.kill_all(state.name) == 0  # both are released


def test_what_only_the_agents_sandbox_had_is_not_there(services: Services, begun: Any) -> None:
    test = "import pathlib\n\n\ndef test_a():\n    assert (pathlib.Path.home() / 'x').exists()\n"
    cheat = [write("test_a.py", test), {"tool": "Bash", "input": {"command": "touch ~/x"}}]
    state = verified(checked(begun("leftover", [cheat]), services), services)
    assert state.decision and (state.decision.next, state.decision.iteration) == ("fix_anew", 2)
    state = state.model_copy(update={"sandbox": create_sandbox.run(state, services)})
    run_claude_code.run(state, services, never)
    prompt = services.objects.read(TaskFolder(state.task_id).prompt(2)).decode()
    assert "in a fresh sandbox" in prompt
    assert "test_a.py::test_a" in prompt


def test_the_agents_session_and_the_model_are_not_in_the_clean_room(
    services: Services, begun: Any
) -> None:
    probe = "import os, pathlib, urllib.request\n\n\ndef test_a():\n"
    probe += "    sessions = list(pathlib.Path.home().glob('.claude/projects/**/*.jsonl'))\n"
    probe += "    url = os.environ['ANTHROPIC_BASE_URL'] + '/v1/models'\n"
    probe += "    try:\n        model = urllib.request.urlopen(url, timeout=5).status\n"
    probe += "    except OSError as error:\n        model = type(error).__name__\n"
    probe += "    pathlib.Path('seen').write_text(f'{len(sessions)} {model}')\n"
    probe += "    print(f'sessions={len(sessions)} model={model}')\n"
    agent = [write("test_a.py", probe), write("pytest.ini", "[pytest]\naddopts = -s\n")]
    state = verified(checked(begun("closed", [agent]), services), services)
    log = (
        TaskFolder(state.task_id).log(1, "test"),
        TaskFolder(state.task_id).log(1, "clean-room-test"),
    )
    coding, clean = (services.objects.read(key).decode() for key in log)
    assert "sessions=1" in coding
    assert "sessions=0" in clean
    assert "model=200" not in clean


def test_hidden_tests_are_run_there_and_only_their_message_is_told(
    services: Services, begun: Any
) -> None:
    state = begun("hidden", [GREEN], acceptance={"test_hidden.py": HIDDEN})
    state = verified(checked(state, services), services)
    assert state.decision and state.decision.next == "fix_anew"
    found = clean_report(state, services)["acceptance"]
    assert (found["status"], found["tests"]["failed"]) == ("failed", 1)
    state = state.model_copy(update={"sandbox": create_sandbox.run(state, services)})
    run_claude_code.run(state, services, never)
    for number in (1, 2):
        prompt = services.objects.read(TaskFolder(state.task_id).prompt(number)).decode()
        assert "secret_source" not in prompt
    assert "test_hidden.py::test_hidden: assert 1 == 2" in prompt
    transcript = services.objects.read(TaskFolder(state.task_id).transcript(2))
    assert b"secret_source" not in transcript


def test_hidden_tests_overwrite_whatever_stands_in_their_place(
    services: Services, begun: Any
) -> None:
    traps = (
        "mkdir -p tests/test_x.py/deep && ln -s /etc sub && echo 'def test_x(): pass' > test_y.py"
    )
    agent = [*GREEN, {"tool": "Bash", "input": {"command": traps}}]
    red = "def test_no():\n    assert False\n"
    hidden = {"tests/test_x.py": red, "sub/test_z.py": red, "test_y.py": red}
    state = verified(checked(begun("traps", [agent], acceptance=hidden), services), services)
    assert clean_report(state, services)["acceptance"]["tests"]["failed"] == 3


def test_hidden_tests_that_pass_finish_the_task(services: Services, begun: Any) -> None:
    hidden = {"tests/test_hidden.py": HIDDEN.replace("== 2", "== 1")}
    state = verified(checked(begun("accepted", [GREEN], acceptance=hidden), services), services)
    assert state.decision and state.decision.next == "finish"
    assert clean_report(state, services)["acceptance"]["status"] == "passed"


def test_hidden_tests_for_node(services: Services, begun: Any) -> None:
    package = json.dumps({"name": "n", "scripts": {"test": "node --test"}, "type": "module"})
    test = "import test from 'node:test'; import assert from 'node:assert';\n"
    agent = [
        write("package.json", package),
        write("a.js", "export const a = 1;\n"),
        write("a.test.js", test + "test('a', () => assert.ok(1));\n"),
    ]
    secret = (
        test
        + "import {a} from './a.js';\ntest('hidden', () => assert.equal(a, 2, 'a is not two'));\n"
    )
    state = begun("node-hidden", [agent], acceptance={"hidden.test.js": secret})
    state = verified(checked(state, services), services)
    found = clean_report(state, services)["acceptance"]
    assert found["tests"] == {"ran": 1, "failed": 1, "skipped": 0, "xfailed": 0, "deselected": 0}
    assert "a is not two" in found["output"]


def test_a_clean_room_that_vanishes_is_followed_by_another(services: Services, begun: Any) -> None:
    slow = TEST.replace("    assert", "    import time; time.sleep(1)\n    assert")
    state = checked(begun("vanish", [[GREEN[0], write("test_a.py", slow)]]), services)
    first = verify_clean.run(state, services, at_once)
    assert (first.status, first.sandboxes) == ("running", 1)
    assert first.sandbox_id
    e2b.Sandbox.kill(first.sandbox_id, api_key="e2b_0")
    state = state.model_copy(update={"clean": first})
    again = verify_clean.run(state, services, never)
    assert (again.status, again.sandbox_id, again.sandboxes) == ("running", None, 2)
    state = state.model_copy(update={"clean": again})
    assert verify_clean.run(state, services, never).green


def test_clean_rooms_that_all_vanish_end_the_task(services: Services, begun: Any) -> None:
    state = checked(begun("gone", [GREEN]), services)
    last = verify_clean.run(state, services, at_once).model_copy(update={"sandboxes": 3})
    e2b.Sandbox.kill(str(last.sandbox_id), api_key="e2b_0")
    with pytest.raises(SandboxLost):
        verify_clean.run(state.model_copy(update={"clean": last}), services, never)


def test_it_hands_over_and_attaches(services: Services, begun: Any) -> None:
    hidden = {"tests/test_hidden.py": HIDDEN.replace("== 2", "== 1")}
    state = checked(begun("handed", [GREEN], acceptance=hidden), services)
    for patience in range(1, 50):
        clean = verify_clean.run(state, services, after(patience))
        state = state.model_copy(update={"clean": clean})
        if clean.status == "done":
            break
    assert clean.green
    assert clean.sandboxes == 1


def archive(files: dict[str, str]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    return packed.getvalue()


def test_a_task_begins_with_the_senders_project(
    world: World, services: Services, begun: Any
) -> None:
    bucket = services.objects.bucket
    services.objects.write("sources/p.tar.gz", archive({"./a.py": "A = 1\n", "test_a.py": TEST}))
    source = {"s3": f"s3://{bucket}/sources/p.tar.gz"}
    state = checked(begun("source", [[write("b.py", "B = 2\n")]], source=source), services)
    assert "holds a project" in services.objects.read(TaskFolder(state.task_id).prompt(1)).decode()
    with services.objects.open(TaskFolder(state.task_id).checkpoint(1)) as file:
        content = io.BytesIO(file.read())
    with tarfile.open(fileobj=content) as packed:
        names = packed.getnames()
    assert {"project/a.py", "project/b.py", "project/test_a.py"} <= set(names)


def test_a_source_that_leads_out_of_its_folder_ends_the_task(services: Services) -> None:
    services.objects.write("sources/evil.tar.gz", archive({"../x": "x"}))
    source = {"s3": f"s3://{services.objects.bucket}/sources/evil.tar.gz"}
    with pytest.raises(InputError) as refused:
        create_sandbox.run(queued(services, "evil", source=source), services)
    assert refused.value.code == "archive_unsafe"


@pytest.mark.parametrize("where", ["s3://other-bucket/sources/a.tar.gz", "s3://{own}/sources/none"])
def test_a_source_that_is_not_there_is_refused_at_the_door(services: Services, where: str) -> None:
    task_id = new_id("no-source")
    source = {"s3": where.format(own=services.objects.bucket)}
    take_in(services, {"task_id": task_id, "specification": "x", "source": source})
    record = services.tasks.get(task_id)
    assert record and record["failure"]["code"] == "source_missing"
    assert services.objects.bucket in record["failure"]["message"] + source["s3"]


PY_HIDDEN = "from add import add\n\n\ndef test_add_three():\n    assert add(1, 2) == 3\n\n\n"
PY_HIDDEN += "def test_negative():\n    assert add(-1, -1) == -2\n"
PY_CHEAT = [
    write("add.py", "def add(a, b):\n    return 3\n"),
    write("test_add.py", "from add import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n"),
]
DROPPED = (
    "def pytest_collection_modifyitems(items):\n    items[:] = [i for i in items if 'neg' not in"
)
DROPPED += " i.name]\n"
GO_TEST = 'package add\n\nimport (\n\t"flag"\n\t"os"\n\t"testing"\n)\n\n'
GO_TEST += "func TestMain(m *testing.M) {\n\tflag.Parse()\n"
GO_TEST += '\tflag.Set("test.run", "^TestAdd$")\n\tos.Exit(m.Run())\n}\n\n'
GO_TEST += "func TestAdd(t *testing.T) {\n\tif Add(1, 2) != 3 {\n\t\tt.Fatal()\n\t}\n}\n"
GO_HIDDEN = 'package add\n\nimport "testing"\n\nfunc TestHidden(t *testing.T) {\n'
GO_HIDDEN += "\tif Add(2, 2) != 5 {\n\t\tt.Fatal()\n\t}\n}\n"
GO_CHEAT = [
    write("go.mod", "module example.com/add\n\ngo 1.19\n"),
    write("add.go", "package add\n\nfunc Add(a, b int) int { return a + b }\n"),
    write("add_test.go", GO_TEST),
]


@pytest.mark.parametrize(
    ("agent", "hidden", "said"),
    [
        (
            [*PY_CHEAT, write("pytest.ini", "[pytest]\npython_functions = test_add*\n")],
            {"test_hidden.py": PY_HIDDEN},
            "test_hidden.py::test_negative",
        ),
        (
            [*PY_CHEAT, write("conftest.py", DROPPED)],
            {"tests/test_hidden.py": PY_HIDDEN},
            "These hidden tests did not run: tests/test_hidden.py: test_negative",
        ),
        (
            GO_CHEAT,
            {"hidden_test.go": GO_HIDDEN},
            "These hidden tests did not run: hidden_test.go: TestHidden",
        ),
    ],
    ids=["settings", "hook", "TestMain"],
)
def test_hidden_tests_that_the_project_keeps_from_running_fail(
    services: Services, begun: Any, agent: Any, hidden: dict[str, str], said: str
) -> None:
    rules = ["hooks_planted", "tests_deselected"]
    state = begun("kept", [agent], acceptance=hidden, allow=rules)
    state = verified(checked(state, services), services)
    assert state.decision and state.decision.next == "fix_anew"
    found = clean_report(state, services)["acceptance"]
    assert found["status"] == "failed"
    assert said in found["output"]
