"""Projects of every toolchain, checked in real sandboxes by the commands of the table."""

import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from autocoder.archive import pack
from autocoder.checks import NO_REPORT, CheckResult
from autocoder.errors import InputError
from autocoder.message import TaskMessage
from autocoder.model import Hashed
from autocoder.sandbox.checking import Checking, acceptance_of, checking_of, require
from autocoder.sandbox.client import SandboxHandle
from autocoder.sandbox.jobs import Job
from autocoder.services import Services
from tests.steps.builders import new_id
from tests.toolchains import tools
from tests.world import never

PYTHON = {"a.py": "A = 1\n", "test_a.py": "from a import A\ndef test_a(): assert A == 1\n"}
NODE = {
    "package.json": json.dumps({"type": "module", "scripts": {"test": "node --test"}}),
    "a.js": "export const a = 1;\n",
    "a.test.js": "import test from 'node:test';\nimport {a} from './a.js';\ntest('a', () => a);\n",
}
GO = {
    "go.mod": "module example.com/m\n\ngo 1.19\n",
    "m.go": "package m\n\n// One is one.\nfunc One() int { return 1 }\n",
    "m_test.go": 'package m\n\nimport "testing"\n\nfunc TestOne(t *testing.T) {\n'
    "\tif One() != 1 {\n\t\tt.Fail()\n\t}\n}\n",
}
RUST = {
    "Cargo.toml": '[package]\nname = "m"\nversion = "0.1.0"\nedition = "2021"\n',
    "src/lib.rs": "pub fn one() -> i32 {\n    1\n}\n",
    "tests/one.rs": "#[test]\nfn one() {\n    assert_eq!(m::one(), 1);\n}\n",
}
PACKAGE = {
    "pyproject.toml": "[build-system]\nrequires = ['hatchling']\n"
    "build-backend = 'hatchling.build'\n"
    "[project]\nname = 'm'\nversion = '1'\n[tool.mypy]\nstrict = true\nfiles = ['m.py']\n"
    "[tool.ruff]\nline-length = 100\n[tool.hatch.build.targets.wheel]\ninclude = ['m.py']\n",
    "m.py": "A: int = 1\n",
    "test_m.py": "from m import A\n\n\ndef test_a():\n    assert A == 1\n",
}
TYPED = {
    "package.json": json.dumps(
        {
            "type": "module",
            "scripts": {"build": "tsc -p . --outDir dist --noEmit false", "test": "node --test"},
            "devDependencies": {"typescript": "5.9.3", "eslint": "9.9.1"},
        }
    ),
    "tsconfig.json": json.dumps(
        {"compilerOptions": {"strict": True, "noEmit": True, "module": "esnext"}, "files": ["a.ts"]}
    ),
    "eslint.config.js": "export default [{files: ['*.js'], rules: {'no-unused-vars': 'error'}}];\n",
    "a.ts": "export const a: number = 1;\n",
    "b.js": "export const b = 1;\n",
    "b.test.js": "import test from 'node:test';\nimport {b} from './b.js';\ntest('b', () => b);\n",
}
HIDDEN = {
    "go": {
        "m_hidden_test.go": GO["m_test.go"]
        .replace("TestOne", "TestHidden")
        .replace("!= 1", "!= 2")
        .replace("t.Fail()", 't.Error("it is not two")')
    },
    "cargo": {"tests/hidden.rs": RUST["tests/one.rs"].replace("1);", '2, "it is not two");')},
}


@pytest.fixture
def sandbox(services: Services) -> Iterator[Callable[[dict[str, str]], SandboxHandle]]:
    """Make sandboxes with a project in them; end them afterwards."""
    name = new_id("toolchain")
    count = iter(range(100))

    def make(files: dict[str, str]) -> SandboxHandle:
        box = services.sandboxes.create(name, next(count))
        box.prepare()
        box.unpack(io.BytesIO(pack(files, "project/")))
        return box

    yield make
    services.sandboxes.kill_all(name)


def message(**fields: Any) -> TaskMessage:
    return TaskMessage(specification="x", **fields)


def kept(name: str, log: bytes) -> Hashed:
    return Hashed(path=name, bytes=len(log), sha256="")


def outcome(checking: Checking) -> dict[str, CheckResult]:
    """Run the checks to their end."""
    end = checking.job.follow(
        checking.commands(),
        deadline_s=100,
        on_line=lambda offset, text: None,
        heartbeat=lambda: False,
        time_is_up=never,
    )
    return {result.name: result for result in checking.results(end, kept)}


def statuses(results: dict[str, CheckResult]) -> dict[str, str]:
    return {name: result.status for name, result in results.items()}


@pytest.mark.parametrize(
    ("tool", "project", "checks"),
    [
        ("go", GO, ["install", "build", "lint", "test"]),
        ("cargo", RUST, ["install", "build", "test"]),
    ],
)
def test_go_and_rust_are_checked_and_accepted(
    sandbox: Any, tool: str, project: dict[str, str], checks: list[str]
) -> None:
    tools.require(tool)
    box = sandbox(project)
    asked = message(acceptance=HIDDEN[tool])
    checking = checking_of(Job(box, "checks"), asked)
    found = outcome(checking)
    assert statuses(found) == dict.fromkeys(checks, "passed"), found
    assert found["test"].tests and found["test"].tests.ran == 1
    hidden = acceptance_of(Job(box, "acceptance"), checking, asked)
    hidden.place()
    refused = outcome(hidden)["acceptance"]
    assert refused.status == "failed"
    assert "it is not two" in refused.output
    assert "func Test" not in refused.output


@pytest.mark.parametrize(
    ("tool", "cache"), [("go", ".cache/go-build"), ("cargo", ".autocoder/target")]
)
def test_what_was_compiled_is_there_in_the_next_iteration(
    sandbox: Any, tool: str, cache: str
) -> None:
    tools.require(tool)
    box = sandbox(GO if tool == "go" else RUST)
    outcome(checking_of(Job(box, "checks-1"), message()))
    assert box.sandbox.files.list(cache)
    again = outcome(checking_of(Job(box, "checks-2"), message()))
    assert again["test"].status == "passed"
    assert "Compiling" not in again["build"].output  # cargo says so when it does
    assert sorted(box.project_files(())) == sorted(
        [*(GO if tool == "go" else RUST), *(["Cargo.lock"] if tool == "cargo" else [])]
    )


def test_a_python_package_is_built_typed_and_linted_and_its_tools_stay(sandbox: Any) -> None:
    box = sandbox(PACKAGE)
    found = outcome(checking_of(Job(box, "checks-1"), message()))
    checks = ["install", "build", "types", "lint", "test"]
    assert statuses(found) == dict.fromkeys(checks, "passed"), found
    assert box.sandbox.files.list(".autocoder/dist")
    marker = ".autocoder/venv/marker"
    box.write(marker, "")
    box.unpack(io.BytesIO(pack({"m.py": "import os\n\nA: int = 'a'\n"}, "project/")))
    found = outcome(checking_of(Job(box, "checks-2"), message()))
    red = {"types": "failed", "lint": "failed", "test": "failed"}
    assert statuses(found) == dict.fromkeys(checks, "passed") | red, found
    assert "Incompatible types in assignment" in found["types"].output
    assert "F401" in found["lint"].output
    assert box.sandbox.files.exists(marker)  # what was installed is not installed again


def test_a_lock_of_uvs_is_installed_as_it_is(sandbox: Any) -> None:
    box = sandbox(PACKAGE | {"test_i.py": "import iniconfig\ndef test_i(): assert iniconfig\n"})
    needs = "[project]\ndependencies = ['iniconfig']"
    named = PACKAGE["pyproject.toml"].replace("[project]", needs)
    box.unpack(io.BytesIO(pack({"pyproject.toml": named}, "project/")))
    box.shell("python3 -m venv u && u/bin/pip -q install uv && cd project && ../u/bin/uv lock -q")
    found = outcome(checking_of(Job(box, "checks"), message()))
    assert "uv sync" in found["install"].command
    assert (found["install"].status, found["test"].status) == ("passed", "passed"), found


def test_node_is_built_typed_and_linted_and_npms_cache_stays(sandbox: Any) -> None:
    box = sandbox(TYPED)
    found = outcome(checking_of(Job(box, "checks-1"), message()))
    checks = ["install", "build", "types", "lint", "test"]
    assert statuses(found) == dict.fromkeys(checks, "passed"), found
    assert box.sandbox.files.list(".npm")
    bad = "export const a: number = 'one';\nvar unused = 1;\n"
    box.unpack(io.BytesIO(pack({"a.ts": bad, "b.js": "var unused = 1;\n"}, "project/")))
    found = outcome(checking_of(Job(box, "checks-2"), message()))
    assert (found["types"].status, found["lint"].status) == ("failed", "failed"), found
    assert "TS2322" in found["types"].output
    assert "no-unused-vars" in found["lint"].output


@pytest.mark.parametrize(
    "conftest",
    [
        "import os\ndef pytest_sessionfinish(): os._exit(0)\n",
        "import os, pathlib\n"
        "for spec in pathlib.Path.home().glob('.autocoder/jobs/*/*'):\n"
        "    if 'key' in spec.read_text(errors='replace'): raise SystemExit(7)\n"
        "os._exit(0)\n",
    ],
    ids=["exits", "finds-no-key"],
)
def test_a_conftest_that_exits_is_no_report(sandbox: Any, conftest: str) -> None:
    bad = {"conftest.py": conftest, "test_a.py": "def test_a(): assert 0\n"}
    found = outcome(checking_of(Job(sandbox(bad), "checks"), message()))["test"]
    assert (found.exit_code, found.status, found.forged) == (0, "failed", True)
    assert found.output.startswith(NO_REPORT)


def test_a_test_script_that_always_exits_0_is_not_green(sandbox: Any) -> None:
    red = NODE["a.test.js"].replace("=> a", "=> { throw new Error('red'); }")
    script = json.dumps({"type": "module", "scripts": {"test": "node --test; exit 0"}})
    project = {**NODE, "a.test.js": red, "package.json": script}
    found = outcome(checking_of(Job(sandbox(project), "checks"), message()))["test"]
    assert (found.exit_code, found.status) == (0, "failed")
    assert found.tests and found.tests.failed == 1


def test_custom_commands_may_leave_a_junit_report(sandbox: Any) -> None:
    case = "<testsuite><testcase name='a'/></testsuite>"
    asked = message(environment="custom", checks={"test": f'echo "{case}" > "$RESULTS"'})
    found = outcome(checking_of(Job(sandbox(PYTHON), "checks"), asked))
    assert statuses(found) == {"test": "passed"}
    assert found["test"].tests and found["test"].tests.ran == 1


def test_a_version_that_is_not_there_is_refused_with_those_that_are(sandbox: Any) -> None:
    box = sandbox(PYTHON)
    here = box.tools("python3", "--version")["python3"].split()[1]
    minor = here.rpartition(".")[0]
    assert require(box, f"python-{minor}").startswith("python3")
    assert require(box, "auto") == ""
    for environment in ("python-2.7", "nodejs-1", "go-0.1", "rust-99"):
        with pytest.raises(InputError) as refused:
            require(box, environment)
        assert refused.value.code == "environment_unavailable"
        assert environment in refused.value.message
    with pytest.raises(InputError, match=minor):
        require(box, "python-2.7")
