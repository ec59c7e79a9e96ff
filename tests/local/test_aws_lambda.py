"""Functions run as on Lambda: process, environment, code, errors, time."""

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.local.aws_lab import Lab, Template, eventually

HANDLERS = {
    "Echo": "def handler(event, context): return event",
    "Raise": """
        class SandboxLost(Exception): pass
        def handler(event, context): raise SandboxLost("gone at " + event["where"])
    """,
    "Exit": "import os\ndef handler(event, context): os._exit(3)",
    "Sleep": """
        import subprocess, time
        def handler(event, context):
            child = subprocess.Popen(["sleep", "600"])
            print("child", child.pid, flush=True)
            time.sleep(event.get("seconds", 600))
    """,
    "Broken": "import nothing_of_that_name",
    "Look": """
        import os, sys, autocoder, boto3, shared
        def handler(event, context):
            print("seen by the log")
            return {
                "environment": dict(os.environ), "autocoder": autocoder.__file__,
                "boto3": boto3.__file__, "shared": shared.WHO, "pid": os.getpid(),
                "remaining": context.get_remaining_time_in_millis(), "cwd": os.getcwd(),
                "memory": context.memory_limit_in_mb, "arn": context.invoked_function_arn,
            }
    """,
    "Overlap": """
        import os, time
        def handler(event, context):
            time.sleep(0.5)
            return os.getpid()
    """,
    "Async": """
        import boto3, os
        def handler(event, context):
            boto3.client("sqs").send_message(QueueUrl=os.environ["QUEUE"], MessageBody="attempt")
            if event.get("fail"): raise ValueError("again")
    """,
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    os.environ["SECRET_OF_THE_HOST"] = "must not be seen"
    lab = Lab(tmp_path_factory.mktemp("lambda"))
    yield lab
    lab.close()


@pytest.fixture(scope="module")
def names(lab: Lab) -> dict[str, str]:
    template = Template()
    package = template.layer("Package", {"autocoder/__init__.py": "", "shared.py": "WHO = 'layer'"})
    foreign = template.layer(
        "Foreign",
        {"boto3/__init__.py": "raise RuntimeError('built for another machine')"},
        CompatibleArchitectures=["riscv"],
        CompatibleRuntimes=["python3.13"],
    )
    queue = template.add("Attempts", "AWS::SQS::Queue")
    options: dict[str, dict[str, Any]] = {
        "Look": {"Layers": [package, foreign], "Timeout": 40},
        "Sleep": {"Timeout": 1},
    }
    for name, code in HANDLERS.items():
        variables = {"Variables": {"GREETING": "hello", "QUEUE": queue}}
        template.function(name, code, Environment=variables, **options.get(name, {}))
    template.add("LookVersion", "AWS::Lambda::Version", FunctionName={"Ref": "Look"})
    return lab.deploy(template)


def test_the_answer_is_what_the_handler_returns(lab: Lab, names: dict[str, str]) -> None:
    event = {"text": "ü" * 300_000, "n": [1, None, 2.5]}
    assert lab.invoke(names["Echo"], event) == (event, False)


def test_an_exception_has_lambdas_shape(lab: Lab, names: dict[str, str]) -> None:
    answer, failed = lab.invoke(names["Raise"], {"where": "noon"})

    assert failed
    assert answer["errorType"] == "SandboxLost"
    assert answer["errorMessage"] == "gone at noon"
    assert "app.py" in answer["stackTrace"][0]
    assert answer["requestId"]


def test_a_crash_is_an_exit_error_and_the_next_invocation_works(
    lab: Lab, names: dict[str, str]
) -> None:
    for _ in range(2):
        answer, failed = lab.invoke(names["Exit"])
        assert failed
        assert answer["errorType"] == "Runtime.ExitError"
        assert answer["errorMessage"].endswith("Runtime exited with error: exit status 3")


def test_a_function_that_is_too_slow_is_killed_with_all_it_started(
    lab: Lab, names: dict[str, str]
) -> None:
    answer, failed = lab.invoke(names["Sleep"])

    assert failed
    assert answer["errorType"] == "Sandbox.Timedout"
    assert answer["errorMessage"].endswith("Task timed out after 1.00 seconds")
    child = int(lab.log("Sleep").split("child ")[1].split()[0])
    eventually(lambda: not _runs(child))


def test_code_that_cannot_be_imported_is_an_init_error(lab: Lab, names: dict[str, str]) -> None:
    answer, failed = lab.invoke(names["Broken"])

    assert failed
    assert answer["errorType"] == "Runtime.ImportModuleError"
    assert "nothing_of_that_name" in answer["errorMessage"]


def test_only_deployed_code_and_declared_variables_are_seen(
    lab: Lab, names: dict[str, str]
) -> None:
    lab.function_env.write_text(json.dumps({"ADDED": "by the local cloud"}))
    seen, failed = lab.invoke(names["Look"])

    assert not failed, seen
    layer, site_packages = seen["autocoder"], seen["boto3"]
    assert layer.startswith(str(lab.state)), "the editable install shadows the deployed layer"
    assert not site_packages.startswith(str(lab.state)), "the foreign layer was loaded"
    assert seen["shared"] == "layer"
    environment = seen["environment"]
    assert environment["GREETING"] == "hello"
    assert environment["ADDED"] == "by the local cloud"
    assert environment["LAMBDA_TASK_ROOT"] == seen["cwd"]
    allowed = ("AWS_", "LAMBDA_", "_HANDLER", "_X_AMZN", "PATH", "LANG", "TZ", "GREETING", "QUEUE")
    assert not [n for n in environment if not n.startswith((*allowed, "ADDED"))]
    assert "seen by the log" in lab.log("Look")
    assert "riscv" in lab.log("aws")


def test_context_knows_deadline_memory_and_version(lab: Lab, names: dict[str, str]) -> None:
    seen, _ = lab.invoke(names["LookVersion"])

    assert 20_000 < seen["remaining"] <= 40_000
    assert seen["memory"] == "256"
    assert seen["arn"] == names["LookVersion"]
    assert names["LookVersion"].endswith(f":function:{names['Look']}:1")


def test_concurrent_invocations_have_a_process_each_and_warm_ones_are_reused(
    lab: Lab, names: dict[str, str]
) -> None:
    with ThreadPoolExecutor(4) as threads:
        first = {pid for pid, _ in threads.map(lambda _: lab.invoke(names["Overlap"]), range(4))}
    again, _ = lab.invoke(names["Overlap"])

    assert len(first) == 4
    assert again in first


@pytest.mark.parametrize(("event", "attempts"), [({}, 1), ({"fail": True}, 3)])
def test_an_asynchronous_invocation_is_tried_three_times(
    lab: Lab, names: dict[str, str], event: dict[str, bool], attempts: int
) -> None:
    sqs = lab.client("sqs")
    answer = lab.client("lambda").invoke(
        FunctionName=names["Async"], InvocationType="Event", Payload=json.dumps(event).encode()
    )

    assert answer["StatusCode"] == 202
    received = 0
    while received < attempts:
        for message in _receive(sqs, names["Attempts"], wait=20):
            sqs.delete_message(QueueUrl=names["Attempts"], ReceiptHandle=message["ReceiptHandle"])
            received += 1
    assert not _receive(sqs, names["Attempts"], wait=3)


def _receive(sqs: Any, queue: str, wait: int) -> list[dict[str, str]]:
    answer = sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=wait)
    messages: list[dict[str, str]] = answer.get("Messages", [])
    return messages


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_account_lets_a_thousand_functions_run_at_once(lab: Lab) -> None:
    limits = lab.client("lambda").get_account_settings()["AccountLimit"]
    assert limits["ConcurrentExecutions"] == 1000
