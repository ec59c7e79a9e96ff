"""Claude Code: how it is called, and what its stream of JSON lines says.

A run is judged by its last `result` event, never by the exit code (an API error exits 1 with the
subtype "success", an empty answer exits 0), and the project only by the service's own checks.
"""

import json
import re
from collections.abc import Iterable
from typing import Any

from pydantic import Field

from autocoder.model import Frozen
from autocoder.prices import BYTES_A_TOKEN, Tokens
from autocoder.task import Failure
from autocoder.text import printable

PROGRAM = "claude"
SILENCE_S = 900
LINGER_S = 20
WRITES = ("Write", "Edit", "NotebookEdit")
MODELS_AT_MOST = 8
REPLAYED = "msg_replay_"  # how the ids of a scenario's answers begin
SAID = {"text": "text", "thinking": "thinking", "tool_use": "input"}  # block → its words
TOKENS = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")

ENVIRONMENT = {
    # One connection, to the model. Without it the CLI also calls home.
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    # Without it a process that the agent leaves in the background keeps the CLI alive for minutes.
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
    # A template may run as root, which the CLI would refuse together with skipped permissions.
    "IS_SANDBOX": "1",
}

# What a run can come to, and what follows: docs/failures.md is made from this.
OUTCOMES = {
    "success": "The run ended by itself, also with an empty answer. The checks decide.",
    "error_max_turns": "It used up limits.max_turns. The checks decide; a fix run goes on from it.",
    "error_max_budget_usd": "It used up what was left of limits.budget_usd. If the checks are red,"
    " the task ends with `budget_exceeded`.",
    "error_during_execution": "It was interrupted, or had no session to resume. The checks decide.",
    "refusal": "The model declined. The task ends with `agent_refused`.",
    "api_error": "The API's last answer was an error (the CLI calls this a success with is_error)."
    " 400, 401, 403, 404: `model_refused`; 402: `budget_exceeded`; all else, after the CLI's ten"
    " tries: `model_unavailable`.",
    "silent": "It said nothing for 15 minutes and was ended. The checks decide.",
    "timed_out": "The task's time was over. The checks run no more than a second.",
    "killed": "A signal ended it before its result. The checks decide; a fix run resumes it.",
    "no_result": "It ended by itself without a result: it would again. `agent_failed`.",
}


def command(
    *,
    prompt: str,
    model: str,
    max_turns: int,
    budget_usd: float,
    resume: str | None,
) -> dict[str, Any]:
    """Describe a run for the runner in the sandbox."""
    argv = [PROGRAM, "--print", "--output-format", "stream-json", "--verbose"]
    argv += ["--model", model, "--max-turns", str(max_turns)]
    argv += ["--max-budget-usd", f"{budget_usd:.4f}", "--dangerously-skip-permissions"]
    argv += ["--setting-sources", "", "--strict-mcp-config"]
    argv += ["--resume", resume] if resume else []
    return {
        "name": "claude",
        "argv": argv,
        "env": ENVIRONMENT,
        "stdin": prompt,
        "feed": True,
        "silence_s": SILENCE_S,
        "linger_s": LINGER_S,
    }


class Outcome(Frozen):
    """What a finished run comes to. `cost_usd` and `session` go on over a resumed session.

    `own` is the least that this run took: what its result says of it, which leaves subagents out,
    or without a result what its messages say.
    """

    session_id: str | None = None
    outcome: str = "no_result"
    turns: int = 0
    cost_usd: float = 0.0
    api_status: int | None = None
    message: str = ""
    tokens: dict[str, int] = Field(default_factory=dict)  # of this run, without subagents
    session: dict[str, Tokens] = Field(default_factory=dict)  # by model, as the result says
    own: dict[str, Tokens] = Field(default_factory=dict)
    version: str | None = None  # of the CLI
    model: str | None = None
    replayed: bool = False  # by its answers' ids, no model gave them


def read_outcome(lines: Iterable[bytes]) -> Outcome:
    """Read a run's whole stream; what counts is its last result."""
    session_id: str | None = None
    result: dict[str, Any] = {}
    init: dict[str, Any] = {}
    heard = Heard()
    for line in lines:
        event = parse_line(line)
        heard.hear(event)
        session_id = as_id(event.get("session_id")) or session_id
        if event.get("type") == "result":
            result = event
        if event.get("subtype") == "init":
            init = event
    seen = Outcome(
        session_id=session_id,
        version=as_text(init.get("claude_code_version")),
        model=as_text(init.get("model")),
        own=heard.models,
        replayed=heard.replayed,
    )
    if not result:
        return seen
    outcome = as_text(result.get("subtype")) or "no_result"
    if outcome == "success" and result.get("is_error"):
        outcome = "refusal" if result.get("stop_reason") == "refusal" else "api_error"
    used = as_dict(result.get("usage"))
    session = session_tokens(result)
    main = seen.model if seen.model in session else next(iter(session), None)
    said = {
        "outcome": outcome,
        "turns": as_int(result.get("num_turns")),
        "cost_usd": as_amount(result.get("total_cost_usd")),
        "api_status": as_int(result.get("api_error_status")) or None,
        "message": (as_text(result.get("result")) or "")[:500],
        "tokens": {kind: as_int(used[kind]) for kind in TOKENS if kind in used},
        "session": session,
        "own": least({main: Tokens.of(used)}, heard.given) if main else seen.own,
    }
    return seen.model_copy(update=said)


def session_tokens(result: dict[str, Any]) -> dict[str, Tokens]:
    """Read a result's `modelUsage`: what the session took so far, subagents included."""
    found: dict[str, Tokens] = {}
    for name, said in list(as_dict(result.get("modelUsage")).items())[:MODELS_AT_MOST]:
        used = as_dict(said)
        hour = as_int(used.get("cacheCreationEphemeral1hInputTokens"))
        found[model_name(name)] = Tokens(
            input=as_int(used.get("inputTokens")),
            output=as_int(used.get("outputTokens")),
            cache_read=as_int(used.get("cacheReadInputTokens")),
            cache_write_5m=max(as_int(used.get("cacheCreationInputTokens")) - hour, 0),
            cache_write_1h=hour,
            web_searches=as_int(used.get("webSearchRequests")),
        )
    return found


def as_id(value: Any) -> str | None:
    """Take an id from the sandbox, if it is one: it goes into the record and the state."""
    return value if isinstance(value, str) and re.fullmatch(r"[\w-]{1,64}", value) else None


def model_name(name: Any) -> str:
    """Take a model's name from the sandbox."""
    return printable(as_text(name) or "unknown")[:100]


def length(kind: str, event: dict[str, Any]) -> int:
    """How many characters of one kind an event's message has."""
    return sum(len(json.dumps(block.get(SAID[kind]))) for block in blocks(event, kind))


class Heard:
    """Counts a run by its messages: exact in what the model was given, a guess at what it said.

    Each message is told block by block, always with the counts that it began with.
    """

    def __init__(self) -> None:
        """Nothing was heard yet."""
        self._messages: dict[str, tuple[str, Tokens, int]] = {}

    def hear(self, event: dict[str, Any]) -> None:
        """Take note of an event, if it is one of the model's."""
        if event.get("type") != "assistant":
            return
        message = as_dict(event.get("message"))
        model, id = model_name(message.get("model")), str(message.get("id"))
        *_, said = self._messages.get(id, (model, Tokens(), 0))
        said += sum(length(kind, event) for kind in SAID)
        self._messages[id] = (model, Tokens.of(as_dict(message.get("usage"))), said)

    @property
    def replayed(self) -> bool:
        """Whether an answer says that it comes from a scenario."""
        return any(id.startswith(REPLAYED) for id in self._messages)

    @property
    def models(self) -> dict[str, Tokens]:
        """What was taken so far, by model."""
        return self._sum(guessing=True)

    @property
    def given(self) -> dict[str, Tokens]:
        """The least that was taken: no result that says less is believed."""
        return self._sum(guessing=False)

    def _sum(self, *, guessing: bool) -> dict[str, Tokens]:
        total: dict[str, Tokens] = {}
        for model, took, said in self._messages.values():
            if took == Tokens():
                continue  # the CLI's own words, or a replay's: nobody is paid for them
            name = model if model in total or len(total) < MODELS_AT_MOST else "unknown"
            guess = Tokens(output=said // BYTES_A_TOKEN) if guessing else Tokens()
            total[name] = total.get(name, Tokens()) + took.at_least(guess)
        return total


def least(said: dict[str, Tokens], heard: dict[str, Tokens]) -> dict[str, Tokens]:
    """What was said, but never less than was heard."""
    nothing = Tokens()
    models = {**said, **heard}
    return {m: said.get(m, nothing).at_least(heard.get(m, nothing)) for m in models}


def hopeless(run: Outcome) -> Failure | None:
    """Say why another iteration would end the same way, if so; else the checks have the word."""
    if run.outcome == "refusal":
        return Failure.of("agent_refused", f"The model declined: {run.message}")
    if run.outcome != "api_error":
        return None
    if run.api_status in (400, 401, 403, 404):
        return Failure.of("model_refused", f"The model refused ({run.api_status}): {run.message}")
    if run.api_status == 402:
        return Failure.of("budget_exceeded", f"The model's budget is used up: {run.message}")
    return Failure.of(
        "model_unavailable", f"The model did not answer ({run.api_status}): {run.message}"
    )


def tool_uses(event: dict[str, Any]) -> list[tuple[str, str]]:
    """Name the tools that an event uses, each with what it is used on."""
    uses = []
    for block in blocks(event, "tool_use"):
        given = as_dict(block.get("input"))
        path = str(given.get("file_path") or "").rpartition("/project/")[2]
        on = path or str(given.get("command") or given.get("pattern") or "")
        uses.append((str(block.get("name"))[:40], on[:200]))
    return uses


def tool_failures(event: dict[str, Any]) -> list[str]:
    """Say how tools failed, for people; the agent was told already."""
    failed = [block for block in blocks(event, "tool_result") if block.get("is_error")]
    return [str(block.get("content"))[:200] for block in failed]


def blocks(event: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    """The blocks of one kind in an event's message."""
    content = as_dict(event.get("message")).get("content")
    found = map(as_dict, content if isinstance(content, list) else [])
    return [block for block in found if block.get("type") == kind]


def parse_line(line: bytes | str) -> dict[str, Any]:
    """Read a line of the stream; what is not an event of the CLI's is an empty one."""
    try:
        return as_dict(json.loads(line))
    except (ValueError, RecursionError):
        return {}


def as_dict(value: Any) -> dict[str, Any]:
    """Take a value from the sandbox as an object, or as an empty one."""
    return value if isinstance(value, dict) else {}


def as_text(value: Any) -> str | None:
    """Take a value from the sandbox as text."""
    return value if isinstance(value, str) and value else None


def as_int(value: Any) -> int:
    """Take a value from the sandbox as a whole number."""
    return value if isinstance(value, int) and 0 <= value < 10**9 else 0


def as_amount(value: Any) -> float:
    """Take a value from the sandbox as an amount of money."""
    return float(value) if isinstance(value, int | float) and 0 <= value < 10**6 else 0.0
