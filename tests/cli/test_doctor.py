"""`autocoder doctor`: all is well on the local cloud; and whatever is broken is named."""

import json
from typing import Any

import pytest

from autocoder.cli import doctor
from autocoder.cli.doctor import CHECKS, Account, Finding, findings
from autocoder.local.state import REGION
from autocoder.sandbox.client import Sandboxes, SandboxHandle
from tests.cli.conftest import Caller
from tests.cli.lab import Lab
from tests.faults.proxy import Rule, faults, reply

NOT_LOCAL = {"AWS", "Lambda", "injection", "template"}
CLOSED = "http://127.0.0.1:1"


def examined(caller: Caller, *args: str, code: int = 1) -> dict[str, Finding]:
    done = caller.call("doctor", "--json", *args)
    assert done.returncode == code, done.stdout + done.stderr
    return {finding["name"]: finding for finding in json.loads(done.stdout)}


def only_failure(found: dict[str, Finding], *names: str) -> Finding:
    failed = [name for name, finding in found.items() if finding["status"] == "failed"]
    assert failed == list(names)
    return found[names[0]]


def test_all_is_well_on_the_local_cloud(lab: Lab) -> None:
    with lab.caller() as caller:
        found = examined(caller, code=0)
        shown = caller.call("doctor")
    assert list(found) == [check.name for check in CHECKS]
    not_checked = {name for name, one in found.items() if one["status"] == "not_checked"}
    assert not_checked == NOT_LOCAL
    assert all(one["status"] == "ok" for name, one in found.items() if name not in NOT_LOCAL)
    assert shown.returncode == 0
    assert "    ok  model: answers while it is let in, and not after" in shown.stdout
    assert "     -  Lambda: functions are processes of this machine" in shown.stdout
    assert lab.sandboxes().all() == []


def test_a_local_cloud_without_a_key_says_so(lab: Lab) -> None:
    with lab.caller(only_scenarios=True) as caller:
        found = examined(caller, code=0)
    assert found["Anthropic"]["status"] == "not_checked"
    assert found["Anthropic"]["message"].startswith("no key; only examples and scenarios")
    assert found["model"]["message"] == "answers while it is let in, and not after"


def test_dead_letters_are_found(lab: Lab) -> None:
    lab.dead("no json")
    with lab.caller() as caller:
        one = only_failure(examined(caller), "dead letters")
        shown = caller.call("doctor")
    assert one["message"] == "1 messages were not accepted."
    assert "queue redrive" in str(one["remedy"])
    assert "queue discard" in str(one["remedy"])
    assert f"FAILED  dead letters: {one['message']} {one['remedy']}" in shown.stdout
    assert f"1 of {len(CHECKS)} checks failed." in shown.stdout


@pytest.mark.parametrize(
    ("outputs", "name", "said", "remedy"),
    [
        ({"TaskQueueUrl": "https://sqs/0/nobody"}, "queue", "NonExistentQueue", "Deploy it again"),
        ({"TasksTable": "nobody"}, "tables", "ResourceNotFound", "Deploy it again"),
    ],
)
def test_a_queue_or_table_that_is_gone(
    lab: Lab, outputs: dict[str, str], name: str, said: str, remedy: str
) -> None:
    with lab.caller(outputs) as caller:
        one = only_failure(examined(caller), name)
    assert said in one["message"]
    assert remedy in str(one["remedy"])


def test_a_table_without_its_index(lab: Lab) -> None:
    name = f"{lab.outputs['TasksTable']}-bare"
    lab.cloud.client("dynamodb").create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "task_id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "task_id", "AttributeType": "S"}],
    )
    with lab.caller({"TasksTable": name}) as caller:
        one = only_failure(examined(caller), "tables")
    assert one["message"] == f"the table {name} has no index by_status."


def test_a_stack_of_an_older_version(lab: Lab) -> None:
    del lab.outputs["MaxRunning"]
    with lab.caller() as caller:
        one = only_failure(examined(caller), "stack")
    assert one["message"] == "it has no output MaxRunning."
    assert "Deploy it again" in str(one["remedy"])


def test_secrets_that_are_missing_empty_or_refused(lab: Lab) -> None:
    client, stem = lab.cloud.client("secretsmanager"), lab.outputs["SandboxOwner"]
    client.create_secret(Name=f"{stem}/empty", SecretString=" ")
    client.create_secret(Name=f"{stem}/wrong", SecretString="sk-ant-wrong-0123")
    with lab.caller({"AnthropicSecretName": f"{stem}/none"}) as caller:
        one = only_failure(examined(caller), "keys", "Anthropic")
        assert "ResourceNotFoundException" in one["message"]
        assert "autocoder setup" in str(one["remedy"])
    with lab.caller({"AnthropicSecretName": f"{stem}/empty"}) as caller:
        found = examined(caller)
        assert found["Anthropic"]["status"] == "not_checked"
        assert found["keys"]["message"] == f"the secret {stem}/empty is empty."
    with lab.caller({"AnthropicSecretName": f"{stem}/wrong"}) as caller:
        one = only_failure(examined(caller), "Anthropic")
        assert f"answered 403 to the key in {stem}/wrong" in one["message"]
        assert "Make a new key" in str(one["remedy"])
    with lab.caller(sandboxes={"gateway_url": CLOSED}) as caller:
        one = only_failure(examined(caller), "Anthropic")
        assert f"{CLOSED} did not answer" in one["message"]


def test_an_e2b_that_can_not_be_reached_or_refuses(lab: Lab) -> None:
    with lab.caller(sandboxes={"api_url": CLOSED, "sandbox_url": CLOSED}) as caller:
        found = examined(caller)
    one = only_failure(found, "E2B", "sandbox")
    assert "check the network" in one["message"]
    for name in ("Claude Code", "model", "clean-up"):
        assert found[name]["status"] == "not_checked"
        assert found[name]["message"] == "there is no sandbox to look into"
    refusal = reply("401 Unauthorized", json.dumps({"code": 401, "message": "no"}))
    with faults(lab.cloud.sandboxes["api_url"]) as proxy:
        proxy.fail(Rule("GET /v2/sandboxes", times=1, answer=refusal))
        with lab.caller(sandboxes={"api_url": proxy.url}) as caller:
            one = only_failure(examined(caller), "E2B")
    assert "E2B refused the key" in one["message"]
    assert "autocoder setup" in one["message"]  # it has its own remedy


def test_a_sandbox_that_is_not_given(lab: Lab) -> None:
    busy = reply("429 Too Many Requests", json.dumps({"code": 429, "message": "too many"}))
    with faults(lab.cloud.sandboxes["api_url"]) as proxy:
        proxy.fail(Rule("POST /v2/sandboxes", times=99, answer=busy))
        with lab.caller(sandboxes={"api_url": proxy.url}) as caller:
            one = only_failure(examined(caller), "sandbox")
    assert "E2B did not answer" in one["message"]
    assert "the E2B team's limits" in str(one["remedy"])


def looked(lab: Lab) -> dict[str, Finding]:
    """All checks, made in this process."""
    return {one["name"]: one for one in findings(Account.of(lab.service), CHECKS)}


def nothing(*_: Any) -> None:
    """Do not do it."""


def test_another_claude_code_than_the_pinned_one(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "claude_version", lambda: "0.0.1")
    one = only_failure(looked(lab), "Claude Code")
    assert one["message"].endswith("not 0.0.1.")
    assert "builds the template anew" in str(one["remedy"])


def test_a_model_that_is_not_let_in(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SandboxHandle, "admit_model", nothing)
    one = only_failure(looked(lab), "model")
    assert "the model's host said no answer" in one["message"]
    assert "Check the Anthropic key and its credit" in str(one["remedy"])


def test_a_model_that_is_not_kept_out(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SandboxHandle, "withdraw_model", nothing)
    one = only_failure(looked(lab), "model")
    assert one["message"] == "the model can still be reached when it must not be."


def test_a_sandbox_that_does_not_end(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Sandboxes, "kill", nothing)
        one = only_failure(looked(lab), "clean-up")
    assert "E2B still lists" in one["message"]
    assert "sandboxes kill" in str(one["remedy"])
    assert lab.sandboxes().all() == []  # it was ended in the end, by its name


def test_a_stack_in_aws_is_checked_for_more(lab: Lab, caller: Caller) -> None:
    # The local cloud in the place of AWS, E2B and Anthropic: no template was ever built there.
    caller.environment |= lab.cloud.function_environment()
    caller.environment |= {
        "AWS_ENDPOINT_URL": lab.cloud.endpoint,
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
    }
    found = examined(caller, "--region", REGION)
    assert found["AWS"]["message"].startswith("account ")
    assert found["Lambda"]["message"] == "1000 functions at once, for 10 tasks"
    assert found["E2B"]["status"] == "ok"
    assert found["template"]["status"] == "failed"
    assert found["template"]["message"].startswith("the template autocoder has no tag autocoder-")
    assert "autocoder setup" in str(found["template"]["remedy"])
    assert found["injection"]["status"] == "failed"
    assert "injected_secret_name" in str(found["injection"]["remedy"])


def test_without_a_stack_that_alone_is_said(stranger: Caller) -> None:
    found = examined(stranger, "--region", REGION)
    assert list(found) == ["stack"]
    assert found["stack"]["message"].startswith("there are no AWS credentials: log in")
    found = examined(stranger, "--local")
    assert "`autocoder local up` starts one" in found["stack"]["message"]
