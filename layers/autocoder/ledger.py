"""What a task has spent: the ledger in its record, and the cost that is reckoned from it.

There is one entry a run of the agent, one for the plan and one a sandbox, each under a name of its
own. A step that is retried writes its entry again, not a second one; nothing is added up before it
is read. So a task that fails anywhere has its cost, and all attempts are in it.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from pydantic import Field

from autocoder.claude import Outcome
from autocoder.model import Frozen
from autocoder.prices import AS_OF, Tokens, sandbox_usd

EMPTY: dict[str, dict[str, Any]] = {"runs": {}, "sandboxes": {}, "iterations": {}}
PLAN = "plan"  # the name of its entry; those of runs are numbers

Models = Mapping[str, Tokens]


class Spent(Frozen):
    """What a run took; iteration 0 is the plan. `ended` is not there while it is under way.

    Of a run that was lost with its sandbox, the entry stays as it was when it was last heard.
    """

    attempt: int
    iteration: int
    models: dict[str, Tokens] = Field(default_factory=dict)
    session_id: str | None = None
    estimate_usd: float = 0.0  # Claude Code's own
    ended: bool = False

    def as_entry(self) -> dict[str, Any]:
        """Write it as the ledger has it."""
        return self.model_dump(exclude_defaults=True)


class Used(Frozen):
    """A sandbox, from when it was made to when it was released, and its size."""

    attempt: int
    cpus: int
    memory_mb: int
    started: str
    ended: str | None = None

    def seconds(self, since: str | None, until: str) -> float:
        """How long it was there in a span of time; one that is there still counts up to now."""
        begins = max(map(moment, filter(None, (self.started, since))))
        ends = min(map(moment, filter(None, (self.ended, until))))
        return max((ends - begins).total_seconds(), 0.0)


class Cost(Frozen):
    """What something cost: reckoned from tokens and seconds by the prices of this date.

    `estimate_usd` is Claude Code's own figure for its runs, and part of no sum.
    """

    model_usd: float
    sandbox_usd: float
    total_usd: float
    estimate_usd: float
    models: dict[str, Tokens]
    sandbox_seconds: float
    prices_as_of: str = AS_OF


class Ledger(Frozen):
    """All that a task has spent: runs, sandboxes by id, and when each iteration was decided."""

    runs: dict[str, Spent] = Field(default_factory=dict)
    sandboxes: dict[str, Used] = Field(default_factory=dict)
    iterations: dict[str, str] = Field(default_factory=dict)

    @classmethod
    def of(cls, record: dict[str, Any]) -> "Ledger":
        """Read it from a task's record."""
        return cls.model_validate(record.get("ledger") or EMPTY)

    def cost(self, now: str) -> Cost:
        """What all attempts came to until now."""
        return reckon(self.runs.values(), ((box, None) for box in self.sandboxes.values()), now)

    def of_iteration(self, number: int, now: str) -> Cost:
        """What an iteration came to; the first of an attempt pays for what was made before it."""
        runs = [run for run in self.runs.values() if run.iteration == number]
        attempt = runs[0].attempt if runs else None
        since, until = (self.iterations.get(str(n)) for n in (number - 1, number))
        boxes = [(box, since) for box in self.sandboxes.values() if box.attempt == attempt]
        return reckon(runs, boxes, until or now)

    def model_usd(self, attempt: int) -> float:
        """What the model cost in one attempt, the plan included: limits.budget_usd is for this."""
        runs = [run for run in self.runs.values() if run.attempt == attempt]
        return reckon(runs, [], AS_OF).model_usd

    def open_in(self, attempt: int) -> list[str]:
        """The sandboxes of an attempt that nobody has released."""
        boxes = self.sandboxes.items()
        return [id for id, box in boxes if box.attempt == attempt and not box.ended]

    def took(self, name: str, outcome: Outcome) -> Models:
        """Say what a run that is over took, from what its transcript says.

        Claude Code counts on over a resumed session: what the session's other runs took is taken
        off. A run that was killed may be in its count or not, so the run's own messages are the
        least that it took. Without a result there is nothing else.
        """
        known: dict[str, Tokens] = {}
        for other, run in self.runs.items():
            if other != name and run.ended and run.session_id == outcome.session_id:
                known = together([known, run.models])
        took = {m: count.without(known.get(m, Tokens())) for m, count in outcome.session.items()}
        least = outcome.own
        return {
            model: took.get(model, Tokens()).at_least(least.get(model, Tokens()))
            for model in {**took, **least}
        }

    def estimate(self, name: str, outcome: Outcome) -> float:
        """Claude Code's figure for one run: its own goes on over a resumed session, too."""
        others = (run for other, run in self.runs.items() if other != name)
        known = sum(run.estimate_usd for run in others if run.session_id == outcome.session_id)
        return round(max(outcome.cost_usd - known, 0.0), 6)


def reckon(runs: Iterable[Spent], sandboxes: Iterable[tuple[Used, str | None]], until: str) -> Cost:
    """Price runs, and sandboxes each from its beginning or the given time on."""
    runs = list(runs)
    models = together(run.models for run in runs)
    model_usd = round(sum(took.usd(model) for model, took in models.items()), 6)
    spans = [(box, box.seconds(since, until)) for box, since in sandboxes]
    boxes_usd = round(sum(sandbox_usd(s, box.cpus, box.memory_mb) for box, s in spans), 6)
    return Cost(
        model_usd=model_usd,
        sandbox_usd=boxes_usd,
        total_usd=round(model_usd + boxes_usd, 6),
        estimate_usd=round(sum(run.estimate_usd for run in runs), 6),
        models=models,
        sandbox_seconds=round(sum(seconds for _, seconds in spans), 1),
    )


def together(parts: Iterable[Models]) -> dict[str, Tokens]:
    """Add up, model by model; one that took nothing is left out."""
    total: dict[str, Tokens] = {}
    for part in parts:
        for model, took in part.items():
            if took != Tokens():
                total[model] = total.get(model, Tokens()) + took
    return total


def moment(text: str) -> datetime:
    """Read a time of a record."""
    return datetime.fromisoformat(text)
