"""What others' tools say of the synthesized template: the CDK CLI, cfn-lint, an ASL validator.

cdk-nag is part of every synth (infra/app.py): a finding without a reason fails it.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from autocoder.local.assembly import ROOT, synth_environment, synthesize
from tests.npm_packages import installed, node

TOOLS = Path(__file__).parent / "npm"
A_FUNCTION = "arn:aws:lambda:us-east-1:123456789012:function:step:1"


@pytest.fixture(scope="module")
def template() -> Path:
    (file,) = synthesize(lambda line: None).glob("*.template.json")
    return file


@pytest.fixture(scope="module")
def tools() -> Path:
    """The CDK CLI and the ASL validator."""
    return installed(TOOLS)


@pytest.mark.timeout(300)  # a whole synth, on a machine that may be busy
def test_the_cdk_cli_synthesizes_the_template_that_runs(
    template: Path, tools: Path, tmp_path: Path
) -> None:
    environment = {
        **synth_environment(tmp_path / "out"),
        "HOME": str(tmp_path),
        "AWS_EC2_METADATA_DISABLED": "true",
        "CDK_DISABLE_CLI_TELEMETRY": "true",
    }
    arguments = ("synth", "--quiet", "--no-notices", "--output", str(tmp_path / "out"))
    done = node(tools / "aws-cdk" / "bin" / "cdk", *arguments, cwd=ROOT, **environment)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / template.name).read_bytes() == template.read_bytes()


def test_make_cdk_runs_the_cdk_cli_that_is_tested() -> None:
    pinned = json.loads((TOOLS / "package.json").read_text())["dependencies"]["aws-cdk"]
    assert f"aws-cdk@{pinned}" in (ROOT / "Makefile").read_text()
    assert "resolved" not in (TOOLS / "package-lock.json").read_text()  # names no registry


def test_cfn_lint_finds_nothing(template: Path) -> None:
    done = subprocess.run(
        # CDK itself writes the dependencies that W3005 finds needless.
        [Path(sys.prefix) / "bin" / "cfn-lint", "--ignore-checks", "W3005", "--", template],
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_workflow_is_valid_amazon_states_language(
    template: Path, tools: Path, tmp_path: Path
) -> None:
    definition = workflow(template)
    assert validated(definition, tools, tmp_path) == ""
    next(s for s in definition["States"].values() if "Next" in s)["Next"] = "Nowhere"
    assert "Nowhere" in validated(definition, tools, tmp_path)  # it does look


def workflow(template: Path) -> dict[str, Any]:
    """The machine's definition, with an ARN for every function."""
    resources = json.loads(template.read_text())["Resources"].values()
    (machine,) = [r for r in resources if r["Type"] == "AWS::StepFunctions::StateMachine"]
    parts = machine["Properties"]["DefinitionString"]["Fn::Join"][1]
    text = "".join(part if isinstance(part, str) else A_FUNCTION for part in parts)
    return dict(json.loads(text))


def validated(definition: dict[str, Any], tools: Path, folder: Path) -> str:
    """What the validator finds; nothing if all is well."""
    file = folder / "definition.json"
    file.write_text(json.dumps(definition))
    script = tools / "asl-validator" / "dist" / "bin" / "asl-validator.js"
    done = node(script, "--json-path", str(file), cwd=folder)
    return "" if done.returncode == 0 else done.stdout + done.stderr
