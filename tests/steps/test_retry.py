"""A further attempt: from what the last one left, once for every message that asks for it."""

import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from autocoder.checks import CheckReport, CheckResult
from autocoder.ledger import EMPTY
from autocoder.ports.objects import TaskFolder
from autocoder.ports.tasks import OF_ONE_ATTEMPT
from autocoder.services import Services
from autocoder.task import State, Status
from functions import (
    create_sandbox,
    dispatch_tasks,
    end_stranded_task,
    finish_task,
    run_claude_code,
)
from tests.faults.support import dead_letters
from tests.steps.builders import new_id, queued, take_in
from tests.world import World, never

Begin = Callable[..., State]
WRITE = {"tool": "Write", "input": {"file_path": "a.py", "content": "A = 1\n"}}
RED = CheckReport(
    toolchain="python",
    checks=[CheckResult(name="test", command="pytest", status="failed", output="THE FAILURE")],
)


def failed(services: Services, state: State) -> State:
    finish_task.run(state, services)  # without a decision: a failure
    record = services.tasks.get(state.task_id)
    assert record and record["status"] == "FAILED"
    return state


def retry(services: Services, state: State, message_id: str | None = None) -> dict[str, Any]:
    take_in(services, {"task_id": state.task_id, "action": "retry"}, message_id)
    record = services.tasks.get(state.task_id)
    assert record
    return record


def next_attempt(record: dict[str, Any]) -> State:
    given = {name: record[name] for name in ("task_id", "attempt", "resumes")}
    return State.model_validate(given)


def test_a_task_that_failed_waits_again_as_the_next_attempt(services: Services) -> None:
    dead_letters(services)  # of others
    state = queued(services, "again", priority="high")
    there: Any = {"progress": {}, "checks": {}, "sandbox_id": "s", "execution_arn": "a"}
    services.tasks.running(state.task_id, 1, **there)
    failed(services, state)
    before = services.tasks.get(state.task_id)
    record = retry(services, state)
    assert (record["status"], record["attempt"], record["queue"]) == ("QUEUED", 2, "high")
    assert not set(OF_ONE_ATTEMPT) & set(record)
    assert before and record["ledger"] == before["ledger"]
    assert dead_letters(services) == []


def test_a_cancelled_task_is_retried_without_its_flag(services: Services) -> None:
    state = queued(services, "cancelled")
    take_in(services, {"task_id": state.task_id, "action": "cancel"})
    record = retry(services, state)
    assert (record["status"], record["attempt"]) == ("QUEUED", 2)
    assert "cancel_requested" not in record


def test_a_cancel_that_comes_again_after_a_retry_is_not_for_the_new_attempt(
    services: Services,
) -> None:
    state, message_id = queued(services, "late-cancel"), str(uuid.uuid4())
    for _ in range(2):
        take_in(services, {"task_id": state.task_id, "action": "cancel"}, message_id)
    assert retry(services, state)["status"] == "QUEUED"
    take_in(services, {"task_id": state.task_id, "action": "cancel"}, message_id)
    record = services.tasks.get(state.task_id)
    assert record and (record["status"], record["attempt"]) == ("QUEUED", 2)
    take_in(services, {"task_id": state.task_id, "action": "cancel"})
    record = services.tasks.get(state.task_id)
    assert record and record["status"] == "CANCELLED"


def test_a_task_whose_message_has_expired_is_not_retried(services: Services) -> None:
    dead_letters(services)
    state = failed(services, queued(services, "expired"))
    services.objects.delete(TaskFolder(state.task_id).message)
    assert retry(services, state)["status"] == "FAILED"
    (letter,) = dead_letters(services)
    assert "has expired" in letter["MessageAttributes"]["reason"]["StringValue"]


def test_it_goes_on_from_the_newest_checkpoint_and_the_clean_rooms_failures(
    services: Services,
) -> None:
    state = queued(services, "newest")
    folder = TaskFolder(state.task_id)
    services.tasks.running(state.task_id, 1, iteration=3)
    for number in (1, 2):
        services.objects.write(folder.checkpoint(number), b"")
    green = RED.model_copy(
        update={"checks": [RED.checks[0].model_copy(update={"status": "passed"})]}
    )
    services.objects.write_json(folder.checks(2), green.model_dump())
    services.objects.write_json(folder.clean_room(2), RED.model_dump())
    resumes = retry(services, failed(services, state))["resumes"]
    assert resumes["iteration"] == 3
    assert resumes["checkpoint"] == folder.checkpoint(2)
    assert resumes["report"] == folder.clean_room(2)


def test_a_record_of_an_earlier_version_is_retried_with_a_ledger(services: Services) -> None:
    state = failed(services, queued(services, "older"))
    key = {"task_id": state.task_id}
    services.tasks.table.update_item(Key=key, UpdateExpression="REMOVE ledger")
    assert retry(services, state)["ledger"] == EMPTY


def test_a_message_that_is_delivered_again_starts_no_further_attempt(services: Services) -> None:
    dead_letters(services)  # of others
    state = failed(services, queued(services, "twice"))
    first, second = str(uuid.uuid4()), str(uuid.uuid4())
    for _ in range(2):
        assert retry(services, state, first)["attempt"] == 2
    failed(services, state.model_copy(update={"attempt": 2}))
    assert retry(services, state, first)["status"] == "FAILED"
    assert retry(services, state, second)["attempt"] == 3
    failed(services, state.model_copy(update={"attempt": 3}))
    for late in (first, second):
        assert retry(services, state, late)["attempt"] == 3
    assert dead_letters(services) == []


@pytest.mark.parametrize(
    ("status", "because"),
    [
        ("QUEUED", "nothing to retry yet"),
        ("RUNNING", "is running; wait for its end"),
        ("SUCCEEDED", "has succeeded"),
        ("REJECTED", "correct its message"),
    ],
)
def test_no_other_task_is_retried_and_the_reason_is_said(
    services: Services, status: Status, because: str
) -> None:
    dead_letters(services)
    task_id = new_id("not-now")
    services.tasks.create(task_id, status, attempt=1, iteration=0, priority="normal")
    before = services.tasks.get(task_id)
    assert retry(services, State(task_id=task_id, attempt=1)) == before
    (letter,) = dead_letters(services)
    reason = letter["MessageAttributes"]["reason"]["StringValue"]
    assert f"task_id: {task_id} " in reason
    assert because in reason


def test_a_task_that_is_not_there_is_not_retried(services: Services) -> None:
    dead_letters(services)
    take_in(services, {"task_id": new_id("nobody"), "action": "retry"})
    (letter,) = dead_letters(services)
    assert "to retry" in letter["MessageAttributes"]["reason"]["StringValue"]


def run_once(services: Services, state: State) -> State:
    return state.model_copy(update={"run": run_claude_code.run(state, services, never)})


def prompt(services: Services, state: State) -> str:
    return services.objects.read(TaskFolder(state.task_id).prompt(state.iteration)).decode()


def test_a_red_project_is_fixed_on_from_its_checkpoint(
    world: World, services: Services, begun: Begin
) -> None:
    state = run_once(services, begun("red", [[WRITE], [{"text": ""}]], specification="THE WISH"))
    services.objects.write_json(TaskFolder(state.task_id).checks(1), RED.model_dump())
    record = retry(services, failed(services, state))
    state = next_attempt(record)
    assert (state.iteration, state.before) == (2, 1)
    state = state.model_copy(update={"sandbox": create_sandbox.run(state, services)})
    assert state.sandbox
    box = services.sandboxes.connect(state.sandbox.sandbox_id)
    assert box.read("project/a.py") == b"A = 1\n"
    assert box.shell("find ~/.claude -name '*.jsonl'").strip() == ""  # a session of its own
    state = run_once(services, state)
    said = prompt(services, state)
    assert said.startswith(f"Autocoder task {state.task_id}, iteration 2 of 11.")
    assert "THE FAILURE" in said
    assert "THE WISH" in said
    services.sandboxes.kill_all(state.name)


def test_a_project_that_was_not_checked_is_gone_on_with(services: Services, begun: Begin) -> None:
    state = run_once(services, begun("unchecked", [[WRITE], [{"text": ""}]]))
    state = next_attempt(retry(services, failed(services, state)))
    state = state.model_copy(update={"sandbox": create_sandbox.run(state, services)})
    state = run_once(services, state)
    assert "An earlier attempt has worked on it" in prompt(services, state)
    services.sandboxes.kill_all(state.name)


def test_a_task_without_a_checkpoint_begins_as_at_first(services: Services, begun: Begin) -> None:
    state = next_attempt(retry(services, failed(services, begun("bare", [[{"text": ""}]]))))
    assert state.checkpoint is None
    assert state.iteration == 1
    state = state.model_copy(update={"sandbox": create_sandbox.run(state, services)})
    state = run_once(services, state)
    assert "earlier attempt" not in prompt(services, state)
    services.sandboxes.kill_all(state.name)


def test_the_execution_is_told_what_it_resumes_however_often_it_is_started(
    world: World, services: Services
) -> None:
    waits = {"StartAt": "W", "States": {"W": {"Type": "Wait", "Seconds": 600, "End": True}}}
    machine = world.client("stepfunctions").create_state_machine(
        name=new_id("retries"),
        definition=json.dumps(waits),
        roleArn="arn:aws:iam::123456789012:role/r",
    )["stateMachineArn"]
    dispatching = world.services(state_machine_arn=machine, max_running=10_000)
    state = failed(services, queued(services, "told"))
    retry(services, state)
    for _ in range(2):
        dispatch_tasks.run(dispatching)
    arn = dispatching.settings.execution_arn(f"{state.task_id}-2")
    given = json.loads(dispatching.workflow.describe_execution(executionArn=arn)["input"])
    assert given == {"task_id": state.task_id, "attempt": 2, "resumes": {"iteration": 0}}
    record = services.tasks.get(state.task_id)
    assert record and record["status"] == "RUNNING"
    assert f"{state.task_id}-2" in services.tasks.holders()


def test_the_late_end_of_an_earlier_attempt_changes_nothing(services: Services) -> None:
    state = failed(services, queued(services, "late"))
    record = retry(services, state)
    finish_task.run(state, services)
    detail = {"name": state.name, "status": "ABORTED"}
    assert end_stranded_task.run(detail, services) is None
    assert services.tasks.get(state.task_id) == record
    detail = {"name": f"{state.task_id}-2", "status": "ABORTED"}
    assert end_stranded_task.run(detail, services) == "FAILED"
