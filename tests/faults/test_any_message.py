"""Whatever is sent, the intake neither crashes, nor loses a message, nor gives it to another task.

Hypothesis makes the messages: texts, JSON, and task messages with one thing wrong, often with the
id of a task that is there already. The intake is the real one, against the embedded AWS.
"""

import json
import uuid
from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

from autocoder.message import Limits, Project, TaskMessage
from autocoder.ports.objects import TaskFolder
from autocoder.services import Services
from functions import start_task
from tests.faults.support import dead_letters
from tests.steps.builders import new_id

# The same examples in every run, so that a failure here is nobody's bad luck.
BOUNDED = settings(
    max_examples=120,
    deadline=timedelta(seconds=20),
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],  # shrinking may take minutes: add it to find a cause
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)

# SQS takes XML's characters only, so nothing else ever reaches the intake.
CHARACTERS = st.characters(
    exclude_categories=["Cs"],
    exclude_characters=[*map(chr, {*range(32)} - {9, 10, 13}), "\ufffe", "\uffff"],
)
TEXT = st.text(CHARACTERS, max_size=60)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
IDS = st.sampled_from(
    ["TAKEN", "OTHER", "ENDED", "FREE", "", "#slots", "Not An Id", "a" * 65, "a\n"]
)
NUMBERS = st.integers() | st.integers(0, 60) | st.floats(0, 1) | st.floats()
ALMOST = {
    "limits": st.dictionaries(st.sampled_from([*Limits.model_fields]), NUMBERS, max_size=3),
    "metadata": st.dictionaries(TEXT, TEXT | TEXT.map(lambda text: text * 9000), max_size=3),
    "project": st.dictionaries(st.sampled_from([*Project.model_fields]), TEXT | st.lists(TEXT)),
    "checks": st.dictionaries(TEXT | st.just("test"), TEXT, max_size=2),
    "priority": st.sampled_from(["high", "normal", "urgent"]),
    "plan": st.booleans(),
}
# A field that may well be right, or with anything at all in it.
FIELDS = st.lists(
    st.one_of(
        [st.tuples(st.just(name), values) for name, values in ALMOST.items()]
        + [st.tuples(st.sampled_from([*TaskMessage.model_fields, "colour"]), JSON_VALUES)]
    ),
    max_size=3,
).map(dict)
MESSAGES = st.builds(
    lambda fields, task_id, specification: {
        **({"specification": specification} if specification else {}),
        **fields,
        **({"task_id": task_id} if task_id is not None else {}),
    },
    FIELDS,
    st.none() | IDS | JSON_VALUES,
    st.none() | TEXT,
)
CONTROLS = st.builds(
    lambda task_id, action: {"task_id": task_id, "action": action},
    IDS | JSON_VALUES,
    st.sampled_from(["cancel", "retry"]) | JSON_VALUES,
)
GOOD = st.fixed_dictionaries(
    {"specification": TEXT.map(lambda text: f"x{text}")},
    optional={
        "task_id": st.sampled_from(["TAKEN", "FREE", None]),
        "metadata": st.dictionaries(st.text(CHARACTERS, min_size=1, max_size=9), TEXT, max_size=3),
        "limits": st.fixed_dictionaries({"budget_usd": st.floats(0.01, 1000)}),
        "priority": st.sampled_from(["high", "normal"]),
    },
)
GOOD_CONTROLS = st.builds(
    lambda task_id, action: {"task_id": task_id, "action": action},
    st.sampled_from(["TAKEN", "ENDED", "FREE"]),
    st.sampled_from(["cancel", "retry"]),
)
OBJECTS = (JSON_VALUES, MESSAGES, GOOD, CONTROLS, GOOD_CONTROLS)
KINDS = (TEXT, *(kind.map(json.dumps) for kind in OBJECTS))
BODIES = st.sampled_from(KINDS).flatmap(lambda kind: kind)


@settings(BOUNDED)
@given(body=BODIES, repeated=st.booleans())
def test_every_message_ends_as_a_task_or_as_a_rejection_and_touches_no_other(
    services: Services, body: str, repeated: bool
) -> None:
    bystanders = new_bystanders(services)
    message_id = str(uuid.uuid4())
    body = named(body, {**bystanders, "FREE": new_id("free")})
    before = {task_id: everything(services, task_id) for task_id in bystanders.values()}
    dead_letters(services)

    for _ in range(2 if repeated else 1):
        start_task.run(body, message_id, services)

    action, named_task = control(body) or ("", "")
    for task_id, was in before.items():
        if task_id != named_task:
            assert everything(services, task_id) == was, "another task was touched"
    letters = [letter for letter in dead_letters(services) if letter["Body"] == body]
    event("rejected" if letters else action or "taken in")
    if letters:
        under = letters[0]["MessageAttributes"]["task_id"]["StringValue"]
        record = services.tasks.get(under)
        assert record and (record["status"], record["message_id"]) == ("REJECTED", message_id)
        assert under not in before
        kept = services.objects.read(TaskFolder(under).rejected(message_id))
        assert kept.decode() == body
    elif action == "retry":
        record = services.tasks.get(named_task)
        assert named_task == bystanders["ENDED"]
        assert record and (record["status"], record["attempt"]) == ("QUEUED", 2)
    elif action == "cancel":
        record = services.tasks.get(named_task)
        ended = named_task == bystanders["ENDED"]
        assert record and record["status"] == ("FAILED" if ended else "CANCELLED")
    else:
        task_id = json.loads(body).get("task_id") or message_id
        sent = {**json.loads(body), "task_id": task_id}
        assert services.objects.read_json(TaskFolder(task_id).message) == sent
        record = services.tasks.get(task_id)
        assert record and record["status"] == "QUEUED"


def new_bystanders(services: Services) -> dict[str, str]:
    """Tasks that are there already, one of which has failed; messages name them now and then."""
    ids = {"TAKEN": new_id("taken"), "OTHER": new_id("other"), "ENDED": new_id("ended")}
    for task_id in ids.values():
        sent = {"specification": "x", "task_id": task_id}
        start_task.run(json.dumps(sent), str(uuid.uuid4()), services)
    services.tasks.finish(ids["ENDED"], 1, "FAILED")
    return ids


def named(body: str, ids: dict[str, str]) -> str:
    """Put real ids where the example has their names."""
    for name, task_id in ids.items():
        body = body.replace(json.dumps(name), json.dumps(task_id))
    return body


def control(body: str) -> tuple[str, str] | None:
    """The action and the task of a control message, if it is one without fault."""
    try:
        content = json.loads(body)
    except ValueError:
        return None
    if not isinstance(content, dict) or set(content) != {"task_id", "action"}:
        return None
    valid = content["action"] in ("cancel", "retry") and isinstance(content["task_id"], str)
    return (content["action"], content["task_id"]) if valid else None


def everything(services: Services, task_id: str) -> tuple[Any, bytes]:
    """All that belongs to a task at this point."""
    record = services.tasks.get(task_id)
    return record, services.objects.read(TaskFolder(task_id).message)
