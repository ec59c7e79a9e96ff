"""A cold start imports what the function uses, and no more."""

import subprocess
import sys

import pytest

from autocoder.local.assembly import ROOT
from infra.steps import FUNCTIONS

HEAVY = {"e2b", "httpx", "anthropic", "boto3", "pydantic", "aws_lambda_powertools", "moto"}
ALWAYS = {"boto3", "pydantic", "aws_lambda_powertools"}

# What a handler's module imports before it is called. `e2b` is imported when a sandbox is first
# asked for (autocoder.services), by those functions only whose layers hold it.
PROBE = """
import sys
before = set(sys.modules)
__import__(sys.argv[1])
print(*sorted({name.partition(".")[0] for name in set(sys.modules) - before}))
"""


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_a_handler_imports_only_what_its_layers_hold(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, f"functions.{name}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    imported = set(done.stdout.split())
    allowed = ALWAYS | ({"e2b", "httpx"} if FUNCTIONS[name].sandbox else set())
    assert imported & HEAVY <= allowed
    assert imported >= ALWAYS
    assert not {"typer", "aws_cdk", "uvicorn", "starlette", "pytest"} & imported
