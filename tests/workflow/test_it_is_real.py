"""Proof that nothing stands in: template, Lambda runtime, e2b SDK, Claude Code are real."""

import base64
import hashlib
import json
import subprocess
from importlib.metadata import distribution, version
from pathlib import Path

from autocoder.cli.verify import named_key
from autocoder.evidence import fingerprint
from autocoder.local.assembly import ROOT
from autocoder.local.cloud import LocalCloud
from autocoder.local.signing import public_key_file
from autocoder.local.toolchain import ensure_toolchain
from tests.workflow.support import ended, read, send, shipped


def test_the_template_that_runs_is_the_synthesized_one(cloud: LocalCloud) -> None:
    # That it is the one that the CDK CLI synthesizes, tests/infra/test_tools.py says.
    written = (cloud.assembly / "Autocoder-main.template.json").read_text()
    deployed = cloud.client("cloudformation").get_template(StackName="Autocoder-main")[
        "TemplateBody"
    ]
    assert json.loads(written) == (deployed if isinstance(deployed, dict) else json.loads(deployed))


def test_handlers_run_through_the_lambda_runtime_from_the_deployed_code(
    cloud: LocalCloud,
) -> None:
    client = cloud.client("lambda")
    (name,) = [
        function["FunctionName"]
        for function in client.list_functions()["Functions"]
        if "DecideNext" in function["FunctionName"]
    ]
    answer = client.invoke(FunctionName=name, Payload=b'{"task_id": 7}')
    assert answer["FunctionError"] == "Unhandled"
    error = json.loads(answer["Payload"].read())
    assert error["errorType"] == "ValidationError"
    trace = "".join(error["stackTrace"])
    assert str(cloud.folder / "code") in trace  # the unzipped layer, not the source tree
    assert "layers/autocoder/services.py" not in trace


def test_evidence_is_signed_with_the_one_key_of_this_user(cloud: LocalCloud) -> None:
    key = cloud.client("kms").get_public_key(KeyId=cloud.outputs["EvidenceKeyArn"])["PublicKey"]
    assert fingerprint(key) == named_key(str(public_key_file()))


def test_e2b_is_the_unmodified_package() -> None:
    pinned = (ROOT / "requirements" / "dev.txt").read_text()
    assert f"e2b=={version('e2b')} " in pinned
    assert unmodified("e2b") > 100


def test_claude_code_is_the_real_one(cloud: LocalCloud, scenarios: Path) -> None:
    assert unmodified("claude-agent-sdk") > 10
    package = Path(str(distribution("claude-agent-sdk").locate_file("claude_agent_sdk")))
    bundled = package / "_bundled" / "claude"
    in_sandboxes = ensure_toolchain(lambda line: None) / "bin" / "claude"
    assert digest(bundled) == digest(in_sandboxes)

    task_id = send(cloud, shipped(scenarios / "first-try", "real-cli"))
    ended(cloud, task_id)
    lines = read(cloud, task_id, "iterations/01/claude.jsonl").splitlines()
    events = [json.loads(line) for line in lines]
    init = next(e for e in events if e.get("subtype") == "init")
    number = subprocess.run([str(bundled), "--version"], capture_output=True, text=True).stdout
    assert init["claude_code_version"] == number.split()[0]
    asked = [json.loads(line) for line in (cloud.folder / "gateway.jsonl").read_text().splitlines()]
    mine = [entry for entry in asked if entry.get("task") == task_id]
    assert [entry["step"] for entry in mine] == [0, 1, 2]
    assert all(entry["user_agent"].startswith("claude-cli/") for entry in mine)


def unmodified(package: str) -> int:
    """Compare every installed file with the hash that its wheel recorded; count them."""
    checked = 0
    for file in distribution(package).files or []:
        if file.hash:
            content = Path(str(file.locate())).read_bytes()
            found = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
            assert found.decode() == file.hash.value, f"{file} was changed"
            checked += 1
    return checked


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
