"""The gateway answers a planner as Anthropic does: the unmodified SDK is content with it."""

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

from autocoder.local.gateway.asker import PLANNER_FILE
from autocoder.message import TaskMessage
from autocoder.plan import Plan
from autocoder.prompts import Place, first_prompt, plan_prompt
from tests.steps.builders import new_id
from tests.world import World

PLAN = {
    "name": "gr\u00fc\u00dfe",
    "environment": "node",
    "files": [],
    "checks": [],
    "acceptance_criteria": ["One."],
    "risks": [],
}
MESSAGE = TaskMessage(specification="Autocoder task other, plan.\nA tool.")


@pytest.fixture
def client(world: World) -> Iterator[anthropic.Anthropic]:
    token = (world.folder / PLANNER_FILE).read_text()
    url = world.sandbox_urls["gateway_url"]
    with anthropic.Anthropic(api_key=token, base_url=url, max_retries=0, timeout=30) as made:
        yield made


def asked(prompt: str) -> dict[str, Any]:
    return {
        "model": "claude-sonnet-5-5",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": prompt}],
    }


def test_the_scenarios_plan_is_parsed_by_the_sdk(world: World, client: anthropic.Anthropic) -> None:
    task_id = new_id("parsed")
    world.add_scenario(task_id, [[]], PLAN)
    answer = client.messages.parse(**asked(plan_prompt(task_id, MESSAGE)), output_format=Plan)
    assert answer.parsed_output == Plan.model_validate(PLAN)
    assert answer.stop_reason == "end_turn"
    (entry,) = world.model_requests(task_id)
    assert (entry["run"], entry["step"], entry["status"]) == (0, 0, 200)


def test_it_is_streamed_where_that_is_asked_for(world: World, client: anthropic.Anthropic) -> None:
    task_id = new_id("streamed")
    world.add_scenario(task_id, [[]], PLAN)
    request = asked(plan_prompt(task_id, MESSAGE))
    with client.messages.stream(**request, output_format=Plan) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert json.loads(text) == PLAN
    assert final.parsed_output == Plan.model_validate(PLAN)


def test_a_scenario_without_a_plan_has_none_to_give(
    world: World, client: anthropic.Anthropic
) -> None:
    task_id = new_id("planless")
    world.add_scenario(task_id, [[]])
    with pytest.raises(anthropic.NotFoundError, match="no plan"):
        client.messages.create(**asked(plan_prompt(task_id, MESSAGE)))


def test_the_planners_token_serves_for_nothing_else(
    world: World, client: anthropic.Anthropic
) -> None:
    task_id = new_id("agent")
    world.add_scenario(task_id, [[{"text": "Done."}]], PLAN)
    with pytest.raises(anthropic.BadRequestError):
        client.messages.create(**asked(first_prompt(Place(task_id, 1, 10), MESSAGE)))


def test_no_other_token_gets_a_plan(world: World, client: anthropic.Anthropic) -> None:
    task_id = new_id("stranger")
    world.add_scenario(task_id, [[]], PLAN)
    stranger = client.with_options(api_key="planner")
    with pytest.raises(anthropic.PermissionDeniedError):
        stranger.messages.create(**asked(plan_prompt(task_id, MESSAGE)))


def test_others_on_the_machine_cannot_read_the_token(world: World) -> None:
    assert (world.folder / PLANNER_FILE).stat().st_mode & 0o077 == 0
