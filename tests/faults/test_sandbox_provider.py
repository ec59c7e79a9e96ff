"""E2B is busy, broken, or gone; answers and streams are lost on the way."""

import e2b
import pytest

from autocoder.errors import ConfigurationError, SandboxLost, TransientError
from autocoder.sandbox import client, jobs
from autocoder.services import Services
from functions import create_sandbox, run_claude_code
from tests.faults.conftest import Begin
from tests.faults.proxy import FaultProxy, Rule, reply
from tests.steps.builders import queued
from tests.world import World, at_once, never

CREATE = r"^POST /v2/sandboxes\b|^POST /sandboxes\b"
START = r"^POST /process\.Process/Start"
GREEN = [
    {"tool": "Write", "input": {"file_path": "a.py", "content": "A = 1\n"}},
    {"tool": "Write", "input": {"file_path": "test_a.py", "content": "def test_a(): pass\n"}},
]


def sandboxes_of(services: Services, name: str) -> int:
    query = e2b.SandboxQuery(metadata={"autocoder_attempt": name})
    pages, found = e2b.Sandbox.list(query=query, api_key="e2b_0"), 0
    while pages.has_next:
        found += len(pages.next_items())
    return found


def test_a_rate_limit_is_waited_out(services: Services, proxy: FaultProxy) -> None:
    state = queued(services, "limited")
    busy = proxy.fail(
        Rule(
            CREATE,
            2,
            answer=reply("429 Too Many", '{"code": 429, "message": "slow"}', Retry_After="1"),
        )
    )
    create_sandbox.run(state, services)
    assert busy.seen == 2
    assert services.sandboxes.kill_all(state.name) == 1


@pytest.mark.parametrize(
    "answer",
    [
        reply("429 Too Many Requests", '{"code": 429, "message": "slow"}', Retry_After="0"),
        reply("503 Service Unavailable", "<html>upstream connect error</html>"),
        reply("500 Internal Server Error", "<html>oops</html>"),
        reply("502 Bad Gateway", ""),
    ],
    ids=["429", "503 that is not JSON", "500 that is not JSON", "502 that is empty"],
)
def test_a_provider_that_goes_on_failing_is_tried_again_later_by_the_workflow(
    services: Services, proxy: FaultProxy, answer: str
) -> None:
    state = queued(services, "busy")
    proxy.fail(Rule(CREATE, 99, answer=answer))
    with pytest.raises(TransientError) as failed:  # what the workflow's Retry goes by
        create_sandbox.run(state, services)
    assert failed.value.code == "sandbox_unavailable"
    proxy.rules.clear()
    create_sandbox.run(state, services)
    assert services.sandboxes.kill_all(state.name) == 1


def test_a_refused_key_is_the_operators_to_act_on(services: Services, proxy: FaultProxy) -> None:
    answer = reply("401 Unauthorized", '{"code": 401, "message": "Invalid API key"}')
    proxy.fail(Rule(CREATE, 99, answer=answer))
    with pytest.raises(ConfigurationError) as refused:
        create_sandbox.run(queued(services, "key"), services)
    assert refused.value.code == "sandbox_refused"


def test_a_create_whose_answer_is_lost_makes_no_second_sandbox(
    services: Services, proxy: FaultProxy
) -> None:
    state = queued(services, "lost")
    lost = proxy.fail(Rule(CREATE, 1, cut_after=0))
    with pytest.raises(TransientError):
        create_sandbox.run(state, services)
    assert lost.seen == 1
    made = create_sandbox.run(state, services)
    assert sandboxes_of(services, state.name) == 1
    assert services.sandboxes.connect(made.sandbox_id)
    assert services.sandboxes.kill_all(state.name) == 1


def test_a_stream_that_drops_again_and_again_loses_and_doubles_nothing(
    world: World, services: Services, begun: Begin, proxy: FaultProxy
) -> None:
    slow = [{**step, "delay_s": 0.5} for step in GREEN]
    state = begun("dropped", [slow])
    dropped = proxy.fail(Rule(START, 3, cut_after=900))
    run = run_claude_code.run(state, services, never)
    assert dropped.seen == 3
    assert run.outcome == "success"
    asked = [(entry["run"], entry["step"]) for entry in world.model_requests(state.task_id)]
    assert asked == [(1, 0), (1, 1), (1, 2)]  # one run of the agent
    tools = [e["detail"]["target"] for e in world.feed(state.task_id) if e["kind"] == "tool"]
    assert tools == ["a.py", "test_a.py"]


def test_a_stream_that_stalls_without_breaking_is_left_for_another(
    world: World,
    services: Services,
    begun: Begin,
    proxy: FaultProxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "STREAM_S", 2)
    state = begun("stalled", [GREEN])
    stalled = proxy.fail(Rule(START, 2, cut_after=300, stalls=True))
    assert run_claude_code.run(state, services, never).outcome == "success"
    assert stalled.seen == 2
    assert len(world.model_requests(state.task_id)) == 3  # one run of the agent


def test_where_every_stream_stalls_a_step_still_hands_over_in_time(
    services: Services, begun: Begin, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "STREAM_S", 1)
    state = begun("stalls", [GREEN])
    proxy.fail(Rule(START, 99, cut_after=0, stalls=True))
    assert run_claude_code.run(state, services, at_once).status == "running"


def test_where_no_stream_ever_answers_the_workflow_tries_again(
    services: Services, begun: Begin, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "RECONNECTS", 3)
    state = begun("mute", [GREEN])
    mute = proxy.fail(Rule(START, 99, cut_after=0))
    with pytest.raises(TransientError):
        run_claude_code.run(state, services, never)
    assert mute.seen == 3


def test_a_sandbox_that_vanishes_while_it_is_filled_is_followed_by_another(
    services: Services, proxy: FaultProxy
) -> None:
    state = queued(services, "vanishes")
    answer = reply("502 Bad Gateway", '{"sandboxId": "x", "message": "The sandbox was not found"}')
    proxy.fail(Rule(r"^POST /files", 1, answer=answer))
    made = create_sandbox.run(state, services)
    assert made.generation == 2
    assert services.sandboxes.kill_all(state.name) == 2


def test_a_task_whose_sandboxes_all_vanish_fails_with_its_code(
    services: Services, proxy: FaultProxy
) -> None:
    state = queued(services, "all-vanish")
    answer = reply("502 Bad Gateway", '{"sandboxId": "x", "message": "The sandbox was not found"}')
    gone = proxy.fail(Rule(r"^POST /files", 99, answer=answer))
    with pytest.raises(SandboxLost) as lost:
        create_sandbox.run(state, services)
    assert lost.value.code == "sandbox_lost"
    assert gone.seen == create_sandbox.MAX_AN_ITERATION == 5
    assert services.sandboxes.kill_all(state.name) == 5
