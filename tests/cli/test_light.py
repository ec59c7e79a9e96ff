"""Commands that only look answer at once: nothing heavy is imported on the way."""

import subprocess
import sys

import pytest

from autocoder.local.assembly import ROOT
from tests.cli.conftest import Caller

TYPER = {"typer", "shellingham", "annotated_doc", "typing_extensions"}
# Typer itself has pydantic read the values that a command is given.
VALUES = TYPER | {"pydantic", "pydantic_core", "annotated_types", "typing_inspection"}

PROBE = """
import atexit, sys
before = set(sys.modules)  # what the interpreter's own start-up brings, also for editable installs
def tell():
    found = {name.partition(".")[0] for name in set(sys.modules) - before}
    found = {name for name in found - sys.stdlib_module_names if not name.startswith("_")}
    print("IMPORTED", *sorted(found), file=sys.stderr)
atexit.register(tell)
from autocoder.cli import main
main()
"""


def imported(caller: Caller, *args: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *args],
        cwd=ROOT,
        env=caller.environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0 or "there is no task" in done.stderr, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("IMPORTED")]
    return set(line.split()[1:])


@pytest.mark.parametrize("args", [["--help"], ["--version"]])
def test_help_takes_typer_and_nothing_else(caller: Caller, args: list[str]) -> None:
    assert imported(caller, *args) <= {"autocoder"} | TYPER


@pytest.mark.parametrize("args", [["list"], ["list", "--json"], ["status", "no-such-task"]])
def test_looking_at_tasks_takes_no_sdk_and_no_drawing(caller: Caller, args: list[str]) -> None:
    assert imported(caller, *args) <= {"autocoder"} | VALUES


def test_aws_takes_botocore_and_what_reads_cdk_json_and_no_more(caller: Caller) -> None:
    heavy = {"boto3", "moto", "e2b", "anthropic", "aws_cdk", "starlette", "httpx", "rich", "numpy"}
    caller.environment |= {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    caller.environment["AWS_ENDPOINT_URL"] = endpoint(caller)
    found = imported(caller, "list", "--region", "us-east-1")
    assert "botocore" in found
    assert not found & heavy


def endpoint(caller: Caller) -> str:
    lines = caller.call("local", "status", "--export").stdout.splitlines()
    return dict(line.removeprefix("export ").split("=", 1) for line in lines)["AWS_ENDPOINT_URL"]
