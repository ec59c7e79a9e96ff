"""What a project's code does to the service's own eyes in its sandbox does not make it green."""

import json
from typing import Any

import pytest

from autocoder.checks import NOT_SEEN
from autocoder.errors import SandboxLost
from autocoder.ports.objects import TaskFolder
from autocoder.services import Services
from tests.steps.test_agent_and_checks import through

RED = "def test_a():\n    assert False\n"
NODE_RED = "require('node:test')('a', () => { throw new Error('red') })\n"
OBSERVER = "p = pathlib.Path.home() / ('.auto' + 'coder') / 'observer.py'\n"
REWRITES = f"""
import pathlib
{OBSERVER}
t = p.read_text().replace('"failed", crash(report)', '"passed"')
p.write_text(t.replace('sys.exit(code)', 'sys.exit(0)'))
"""
SIGNS = """
const handed = JSON.parse(require('fs').readFileSync(0, 'utf8') || 'null')
if (handed) {
  const report = JSON.stringify({ passed: 1, failed: 0, skipped: 0, xfailed: 0, deselected: 0,
    ids: ['a'], failures: [] })
  const hmac = require('crypto').createHmac('sha256', handed.key).update(report).digest('hex')
  require('fs').writeFileSync(handed.path, hmac + '\\n' + report)
}
"""
REWRITES_NODES = """
const fs = require('fs'), p = require('os').homedir() + '/.auto' + 'coder/observer.mjs'
fs.writeFileSync(p, fs.readFileSync(p, 'utf8').replace(
  'type === "test:pass" ? "passed" : "failed"', '"passed"').replace(
  'counts[outcome] += 1;',
  'counts[outcome] += 1; process.on("exit", () => { process.exitCode = 0 });'))
"""
KILLS = """
import hashlib, hmac, json, os, pathlib, signal

for job in (pathlib.Path.home() / (".auto" + "coder") / "jobs").glob("c*"):
    commands = json.loads((job / "spec.json").read_text())["commands"]
    if (job / "exit.json").exists() or not any(c.get("observed") for c in commands):
        continue
    found = dict(passed=2, failed=0, skipped=0, xfailed=0, deselected=0, ids=["x"], failures=[])
    body = json.dumps(found).encode()
    report = job / "r"
    report.write_bytes(hmac.new(b"k", body, hashlib.sha256).hexdigest().encode() + b"\\n" + body)
    ends = [
        dict(name=c["name"], exit_code=0, reason="exited", seconds=0.1, left=0,
             report=dict(path=str(report), key="k") if c["observed"] else None)
        for c in commands
    ]
    (job / "exit.json").write_text(json.dumps(dict(commands=ends, error=None, seal="")))
    os.kill(int((job / "pid").read_text()), signal.SIGKILL)
"""


def package(test: str, **scripts: str) -> str:
    return json.dumps({"name": "a", "version": "1.0.0", "scripts": {"test": test, **scripts}})


def left(**files: str) -> list[dict[str, Any]]:
    """What an agent leaves; a name's __ is a dot."""
    named = {name.replace("__", "."): text for name, text in files.items()}
    return [
        {"tool": "Write", "input": {"file_path": path, "content": text}}
        for path, text in named.items()
    ]


@pytest.mark.parametrize(
    "files",
    [
        left(test_a__py=RED, pytest__py=REWRITES),
        left(
            a__test__js=NODE_RED,
            package__json=package("node --test", build="node b.js"),
            b__js=REWRITES_NODES,
        ),
        left(
            a__test__js=NODE_RED,
            package__json=package("node --test", pretest="node b.js"),
            b__js=REWRITES_NODES,
        ),
        left(
            a__test__js=NODE_RED,
            package__json=package("node b.js; node --test"),
            b__js=REWRITES_NODES,
        ),
        left(a__test__js=NODE_RED, package__json=package("node b.js; node --test"), b__js=SIGNS),
    ],
    ids=["while installing", "while building", "before the tests", "in the script", "the key"],
)
def test_the_projects_code_neither_rewrites_an_observer_nor_signs_for_it(
    services: Services, begun: Any, files: list[dict[str, Any]]
) -> None:
    state = through(begun("rewritten", [files]), services)
    report = services.objects.report(TaskFolder(state.task_id).checks(1))
    assert report and report.test
    assert report.test.status == "failed"
    assert report.test.tests and report.test.tests.failed == 1  # the observer saw it


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("node run.js --test", SIGNS),
        ("node run.js", "console.log('# tests 2\\n# fail 0')\n"),
        ("node run.js", ""),
    ],
)
def test_a_script_that_says_itself_that_its_tests_passed_is_not_believed(
    services: Services, begun: Any, script: str, code: str
) -> None:
    files = left(package__json=package(script), a__test__js=NODE_RED, run__js=code)
    state = through(begun("says-so", [files]), services)
    report = services.objects.report(TaskFolder(state.task_id).checks(1))
    assert report and report.test
    assert report.test.status == "failed"
    assert NOT_SEEN in report.test.output


def test_an_end_that_another_than_the_supervisor_wrote_is_none(
    services: Services, begun: Any
) -> None:
    with pytest.raises(SandboxLost, match="something in it ended the job's supervisor"):
        through(begun("killed", [left(test_a__py=KILLS + RED)]), services)
