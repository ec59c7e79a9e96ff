"""What the observers note is what the real runners did: each runs here, on a project of its own."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from autocoder.checks import Counts
from autocoder.results import Results, signed
from autocoder.sandbox.client import SOURCES
from autocoder.sandbox.observer import Observed
from autocoder.toolchains import JEST_ALONE, VITEST_ALONE
from tests.npm_packages import NODE
from tests.toolchains.tools import PATH, node_modules, require, write

KEY = "a key of the test's"
REPORT = "report"
OBSERVER = SOURCES / "observer.py"
NODE_TEST = [
    *(str(NODE / "bin" / "node"), "--test", "--test-reporter=spec"),
    *("--test-reporter-destination=stdout", f"--test-reporter={SOURCES / 'observer.mjs'}"),
    "--test-reporter-destination=stdout",
]

PYTEST = """
import pytest
def test_good(): pass
@pytest.mark.parametrize("n", [1, 2])
def test_each(n): assert n != 2, "it is two"
@pytest.mark.skip
def test_skipped(): pass
@pytest.mark.xfail
def test_expected(): assert 0
@pytest.fixture
def broken(): raise ValueError("no fixture")
def test_with(broken): pass
def test_left_out(): pass
"""
UNITTEST = """
import unittest
class T(unittest.TestCase):
    def test_good(self): pass
    def test_bad(self): self.fail("it is bad")
    def test_subs(self):
        for n in (1, 2):
            with self.subTest(n=n): self.assertEqual(n, 1)
    @unittest.skip("no")
    def test_skipped(self): pass
    @unittest.expectedFailure
    def test_expected(self): self.fail()
"""
NODE_TESTS = """
const { test, describe, it } = require("node:test");
test("good", () => {});
test("bad", () => { throw new Error("it is bad"); });
test("skipped", { skip: true }, () => {});
test("later", { todo: true }, () => { throw new Error("not yet"); });
describe("suite", () => { it("inner", () => {}); });
"""
JEST = """
test("good", () => {});
test("bad", () => { expect(1).toBe(2); });
test.skip("skipped", () => {});
test.todo("later");
describe("suite", () => { it("inner", () => {}); });
"""
GO = """package m
import "testing"
func TestGood(t *testing.T) {}
func TestBad(t *testing.T) { t.Errorf("got %d, want 2", 1) }
func TestSkipped(t *testing.T) { t.Skip("no") }
func TestSub(t *testing.T) { t.Run("one", func(t *testing.T) {}) }
"""
RUST = """
/// ```
/// assert_eq!(m::one(), 1);
/// ```
pub fn one() -> i32 { 1 }
#[cfg(test)]
mod tests {
    #[test] fn good() {}
    #[test] fn bad() { assert_eq!(super::one(), 2, "it is not two"); }
    #[test] #[ignore] fn skipped() {}
    #[test] #[should_panic] fn panics() { panic!("as expected") }
}
"""
CARGO = '[package]\nname = "m"\nversion = "0.1.0"\nedition = "2021"\n'

Observe = Callable[..., tuple[int, Results | None]]


@pytest.fixture
def observe(tmp_path: Path) -> Observe:
    """Run tests as a job's runner does: the key comes on stdin."""
    folder = tmp_path / "project"

    def run(
        command: list[str], files: dict[str, str], *, hand_over: bool = True
    ) -> tuple[int, Results | None]:
        write(folder, files)
        report = tmp_path / REPORT
        handed_over = json.dumps({"path": str(report), "key": KEY}) + "\n"
        done = subprocess.run(
            command,
            cwd=folder,
            input=handed_over.encode() if hand_over else b"",
            env={"PATH": PATH, "HOME": str(tmp_path), "CI": "true"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=110,
        )
        print(done.stdout.decode(errors="replace"))  # noqa: T201 - shown when the test fails
        found = signed(report.read_bytes(), KEY) if report.exists() else None
        return done.returncode, found

    return run


def observer(*arguments: str) -> list[str]:
    return [sys.executable, str(OBSERVER), *arguments]


def seen(found: tuple[int, Results | None]) -> Results:
    assert found[1], "no report was written"
    return found[1]


def in_short(found: tuple[int, Results | None]) -> list[str]:
    return [name for name, _ in seen(found).failures]


def test_pytest(observe: Observe) -> None:
    command = observer("pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", "not left_out")
    found = observe(command, {"test_it.py": PYTEST})
    assert found[0] == 1
    assert seen(found).counts == Counts(ran=4, failed=2, skipped=1, xfailed=1, deselected=1)
    assert seen(found).ids == [
        *("test_it.py::test_each", "test_it.py::test_good", "test_it.py::test_with")
    ]
    assert seen(found).failures[0] == (
        "test_it.py::test_each[2]",
        "AssertionError: it is two\nassert 2 != 2",
    )
    assert in_short(found) == ["test_it.py::test_each[2]", "test_it.py::test_with"]


def test_tests_in_a_folder_import_from_the_projects_own(observe: Observe) -> None:
    files = {"a.py": "A = 1\n", "tests/test_a.py": "from a import A\ndef test_a(): assert A\n"}
    assert observe(observer("pytest"), files)[0] == 0


def test_a_failure_stays_one() -> None:
    observed = Observed()
    observed.note("a", "failed", "no")
    observed.note("a", "passed")
    assert json.loads(observed.report())["failed"] == 1


def test_pytest_that_cannot_collect(observe: Observe) -> None:
    found = observe(observer("pytest"), {"test_it.py": "import nothing_of_that_name\n"})
    assert found[0] == 2
    assert seen(found).counts.failed == 1


def test_the_projects_own_pytest_is_not_the_one_that_runs(observe: Observe) -> None:
    planted = "def main(*_, **__): return 0\n"
    found = observe(observer("pytest"), {"pytest.py": planted, "test_it.py": "def test_a(): 1/0\n"})
    assert found[0] == 1
    assert seen(found).counts.failed == 1


@pytest.mark.parametrize(
    "conftest",
    [
        "import os\nos._exit(0)\n",
        "import os\ndef pytest_sessionfinish(): os._exit(0)\n",
        "import os\ndef pytest_unconfigure(): os._exit(0)\n",
        # As good as it gets without the key: the path is seen, the signature is not known.
        "import os, pathlib\ndef pytest_unconfigure():\n"
        '    text = \'{"passed": 9, "failed": 0}\'\n'
        "    pathlib.Path('../report').write_text('0' * 64 + '\\n' + text)\n    os._exit(0)\n",
        "import os, sys\nassert 'key' not in str(sys.argv) + str(os.environ)\nos._exit(0)\n",
    ],
)
def test_who_exits_early_or_writes_a_report_himself_has_none(
    observe: Observe, conftest: str
) -> None:
    bad = "def test_bad(): assert 0\n"
    code, found = observe(observer("pytest"), {"conftest.py": conftest, "test_it.py": bad})
    assert code == 0  # what it wanted
    assert found is None


@pytest.mark.parametrize("command", [observer("pytest"), NODE_TEST], ids=["python", "node"])
def test_an_agent_may_try_the_command_and_gets_no_report(
    observe: Observe, command: list[str]
) -> None:
    files = {"test_it.py": "def test_a(): pass\n", "it.test.js": "require('node:test')('a');\n"}
    assert observe(command, files, hand_over=False) == (0, None)


def test_unittest(observe: Observe) -> None:
    found = observe(observer("unittest", "discover"), {"test_x.py": UNITTEST})
    assert found[0] == 1
    assert seen(found).counts == Counts(ran=3, failed=2, skipped=1, xfailed=1)
    assert ("test_x.T.test_bad", "it is bad") in seen(found).failures
    assert any(name.startswith("test_x.T.test_subs") for name in in_short(found))


def test_node(observe: Observe) -> None:
    files = {"it.test.js": NODE_TESTS, "empty.test.js": "1;\n"}
    found = observe(NODE_TEST, files)
    assert found[0] == 1
    assert seen(found).counts == Counts(ran=3, failed=1, skipped=1, xfailed=1)
    assert seen(found).ids == [
        *("it.test.js > bad", "it.test.js > good", "it.test.js > suite > inner")
    ]
    assert seen(found).failures == [("it.test.js > bad", "it is bad")]


def test_a_name_of_nodes_is_never_cut_within_a_character(observe: Observe) -> None:
    name = "a" * 286 + "\U0001f600" * 9
    test = f"require('node:test')('{name}', () => {{ throw new Error('red'); }});\n"
    found = observe(NODE_TEST, {"it.test.js": test})
    assert in_short(found) == [f"it.test.js > {name}"[:300]]


def test_a_node_file_without_tests_is_none(observe: Observe) -> None:
    found = observe(NODE_TEST, {"empty.test.js": "1;\n"})
    assert found[0] == 0
    assert seen(found).counts.ran == 0


def test_a_node_test_cannot_read_the_key(observe: Observe) -> None:
    peek = "require('node:test')('a', () => {\n"
    peek += (
        "  const text = require('node:fs').readFileSync(`/proc/${process.ppid}/fd/0`, 'utf8');\n"
    )
    peek += "  if (text.includes('key')) throw new Error('the key was there');\n});\n"
    found = observe(NODE_TEST, {"it.test.js": peek})
    assert seen(found).counts == Counts(ran=1, failed=0, skipped=0)


@pytest.mark.timeout(300)  # npm installs the two, once
@pytest.mark.parametrize("alone", [JEST_ALONE, VITEST_ALONE], ids=["jest", "vitest"])
def test_jest_and_vitest(observe: Observe, tmp_path: Path, alone: str) -> None:
    command = alone.replace("../.autocoder", str(SOURCES))
    (tmp_path / "project").mkdir()
    shutil.copytree(node_modules(), tmp_path / "project" / "node_modules", symlinks=True)
    globals_ = 'import { test, expect, describe, it } from "vitest";\n' if "vitest" in alone else ""
    npm = tmp_path / "npm"
    write(
        tmp_path, {"npm": f'#!/bin/sh\nexec node {NODE}/lib/node_modules/npm/bin/npm-cli.js "$@"\n'}
    )
    npm.chmod(0o755)
    files = {
        "package.json": "{}",
        "it.test.js": globals_ + JEST,
        "broken.test.js": "this is no script(\n",
    }
    found = observe(["/bin/bash", "-c", f"PATH={tmp_path}:$PATH; {command}"], files)
    assert found[0] == 1
    assert seen(found).counts == Counts(ran=4, failed=2, skipped=1, xfailed=1)
    assert "it.test.js > suite > inner" in seen(found).ids
    assert sorted(in_short(found)) == ["broken.test.js", "it.test.js > bad"]
    assert "at " not in seen(found).failures[0][1]  # the message, without the stack


def test_go(observe: Observe) -> None:
    require("go")
    files = {
        "go.mod": "module example.com/m\ngo 1.19\n",
        "m_test.go": GO,
        "broken/b_test.go": 'package broken\nimport "testing"\nfunc TestX(t *testing.T) { no() }\n',
    }
    found = observe(observer("go", "test", "-json", "-count=1", "./..."), files)
    assert found[0] != 0
    assert seen(found).counts == Counts(ran=5, failed=2, skipped=1)
    assert "example.com/m.TestSub" in seen(found).ids
    assert ("example.com/m.TestBad", "m_test.go:4: got 1, want 2") in seen(found).failures
    assert "example.com/m/broken" in in_short(found)


def test_go_whose_main_exits_ran_nothing(observe: Observe) -> None:
    require("go")
    main = 'package m\nimport ("os"; "testing")\nfunc TestMain(m *testing.M) { os.Exit(0) }\n'
    main += "func TestBad(t *testing.T) { t.Fail() }\n"
    files = {"go.mod": "module example.com/m\ngo 1.19\n", "m_test.go": main}
    found = observe(observer("go", "test", "-json", "./..."), files)
    assert found[0] == 0
    assert seen(found).counts.ran == 0


def test_cargo(observe: Observe) -> None:
    require("cargo")
    files = {
        "Cargo.toml": CARGO,
        "src/lib.rs": RUST,
        "tests/outer.rs": "#[test] fn outer() { assert_eq!(m::one(), 1); }\n",
    }
    found = observe(observer("cargo", "test", "--no-fail-fast"), files)
    assert found[0] == 101
    assert seen(found).counts == Counts(ran=5, failed=1, skipped=1)
    assert {"src/lib.rs::tests::panics", "tests/outer.rs::outer"} < set(seen(found).ids)
    ((name, message),) = seen(found).failures
    assert name == "src/lib.rs::tests::bad"
    assert "it is not two" in message
    left_out = observe(observer("cargo", "test", "--lib", "good"), {})
    assert seen(left_out).counts == Counts(ran=1, failed=0, skipped=0, deselected=3)


def test_rust_that_does_not_compile_ran_nothing(observe: Observe) -> None:
    require("cargo")
    found = observe(observer("cargo", "test"), {"Cargo.toml": CARGO, "src/lib.rs": "no\n"})
    assert found[0] == 101
    assert seen(found).counts.ran == 0


def test_a_missing_toolchain_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.toolchains.tools.PATH", "/nowhere")
    monkeypatch.delenv("AUTOCODER_WITHOUT", raising=False)
    with pytest.raises(pytest.fail.Exception, match="apt-get install golang-go"):
        require("go")
    monkeypatch.setenv("AUTOCODER_WITHOUT", "go,cargo")
    with pytest.raises(pytest.skip.Exception, match="go is left out"):
        require("go")
