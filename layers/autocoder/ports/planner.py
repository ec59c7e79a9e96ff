"""The model that plans, through Anthropic's SDK; its endpoint is the SDK's ANTHROPIC_BASE_URL.

Import this only where a plan is made: the SDK takes seconds to import.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import anthropic
from pydantic import BaseModel, Field, ValidationError

from autocoder.errors import ConfigurationError
from autocoder.plan import Plan, PlannerUnavailable, StoredPlan, Usage, read_plan

MAX_TOKENS = 8000
RETRIES = 1  # and no more of the task's time: it can run without a plan
CONNECT_S = 10.0
LOOK_EVERY_S = 2.0  # whether the plan is still wanted


class Block(BaseModel):
    """A part of an answer."""

    type: str
    text: str = ""


class Answer(BaseModel):
    """What is read of an answer. Strict about that and about nothing else: APIs grow."""

    content: list[Block]
    stop_reason: str | None = None
    usage: Usage = Field(default_factory=Usage)


class Planner:
    """Asks for plans."""

    def __init__(self, api_key: str) -> None:
        """`api_key` is Anthropic's."""
        self.api_key = api_key

    def plan(
        self, prompt: str, *, model: str, timeout_s: float, go_on: Callable[[], None]
    ) -> StoredPlan:
        """Ask for a plan; PlannerUnavailable for whatever the task can do without.

        `go_on` is called every few seconds; what it raises ends the request.
        """
        answer = asyncio.run(heeding(go_on, self._ask(prompt, model, timeout_s)))
        if answer.stop_reason == "refusal":
            raise PlannerUnavailable("The model refused to plan.", answer.usage)
        if answer.stop_reason == "max_tokens":
            reason = f"The planner's answer was cut off at {MAX_TOKENS} tokens."
            raise PlannerUnavailable(reason, answer.usage)
        text = "".join(block.text for block in answer.content if block.type == "text")
        plan = read_plan(text, answer.usage)
        return StoredPlan(model=model, usage=answer.usage, plan=plan)

    async def _ask(self, prompt: str, model: str, timeout_s: float) -> Answer:
        # Not the SDK's `parse`: that loses stop_reason and usage where an answer is no plan.
        schema = anthropic.transform_schema(Plan)
        try:
            async with anthropic.AsyncAnthropic(
                api_key=self.api_key, max_retries=RETRIES
            ) as client:
                answer = await client.messages.with_raw_response.create(
                    model=model,
                    max_tokens=MAX_TOKENS,
                    messages=[{"role": "user", "content": prompt}],
                    output_config={"format": {"type": "json_schema", "schema": schema}},
                    timeout=anthropic.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s)),
                )
                return Answer.model_validate_json(await answer.text())
        except anthropic.AuthenticationError:
            # The agent's key is the same one: without a valid key no task can run at all.
            message = "Anthropic does not know the API key that the planner was given (401)."
            raise ConfigurationError("planner_key_refused", message) from None
        except anthropic.APIStatusError as error:
            reason = f"The planner answered {error.status_code} ({error.type or 'no type'})."
            raise PlannerUnavailable(reason) from error
        except anthropic.APITimeoutError as error:
            reason = f"The planner did not answer within {timeout_s:.0f} seconds."
            raise PlannerUnavailable(reason) from error
        except anthropic.AnthropicError as error:
            reason = f"The planner could not be reached ({type(error).__name__})."
            raise PlannerUnavailable(reason) from error
        except ValidationError as error:
            reason = "The planner's answer is not one of the Messages API."
            raise PlannerUnavailable(reason) from error


async def heeding(go_on: Callable[[], None], work: Coroutine[Any, Any, Answer]) -> Answer:
    """Do the work as long as nothing is raised; what it does then is cancelled."""
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait({task}, timeout=LOOK_EVERY_S))[0]:
            go_on()
        return task.result()
    finally:
        task.cancel()
