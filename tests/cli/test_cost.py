"""`autocoder cost`: sums of what records say, and what is not in them."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from autocoder.prices import Tokens
from tests.cli.lab import Lab

SONNET, HAIKU = "claude-sonnet-5-5", "claude-haiku-5-5"
TOKENS = {SONNET: Tokens(input=1_000_000, output=100_000), HAIKU: Tokens(output=1_000_000)}


def ago(**since: float) -> str:
    time = datetime.now(UTC) - timedelta(**since)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def cost(*models: str, sandbox_usd: float, estimate_usd: float) -> dict[str, Any]:
    model_usd = sum(TOKENS[model].usd(model) for model in models)
    return {
        "model_usd": model_usd,
        "sandbox_usd": sandbox_usd,
        "total_usd": model_usd + sandbox_usd,
        "estimate_usd": estimate_usd,
        "models": {model: TOKENS[model].model_dump() for model in models},
        "sandbox_seconds": 60.0,
        "prices_as_of": "2026-11-16",
    }


@pytest.fixture
def spent(lab: Lab) -> Lab:
    """Two tasks of today, one that runs, one of last week, one that was rejected."""
    new = cost(SONNET, HAIKU, sandbox_usd=0.25, estimate_usd=9.0)
    lab.put("new", "SUCCEEDED", ago(minutes=1), cost=new)
    old = cost(SONNET, sandbox_usd=0.5, estimate_usd=0.0)
    lab.put("old", "FAILED", ago(days=8), cost=old)
    running = cost(SONNET, sandbox_usd=0.125, estimate_usd=1.0)
    lab.put("running", "RUNNING", ago(minutes=2), cost=running)
    lab.put("rejected", "REJECTED", ago(minutes=3))
    return lab


def asked(lab: Lab, *args: str) -> Any:
    with lab.caller() as caller:
        done = caller.call("cost", "--json", *args)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_costs_are_added_up_since_then(spent: Lab) -> None:
    found = asked(spent, "--since", "7d", "--by", "task")
    sonnet, haiku = TOKENS[SONNET].usd(SONNET), TOKENS[HAIKU].usd(HAIKU)
    assert [row["of"] for row in found["rows"]] == ["new", "running"]
    assert found["rows"][0] == {
        "of": "new",
        "tasks": 1,
        "model_usd": pytest.approx(sonnet + haiku),
        "sandbox_usd": 0.25,
        "total_usd": pytest.approx(sonnet + haiku + 0.25),
        "estimate_usd": 9.0,
    }
    total = found["total"]
    assert (total["tasks"], total["sandbox_usd"], total["estimate_usd"]) == (2, 0.375, 10.0)
    assert total["total_usd"] == pytest.approx(2 * sonnet + haiku + 0.375)  # no estimate in it
    assert (found["without_cost"], found["not_ended"]) == (1, 1)
    assert found["prices_as_of"] == ["2026-11-16"]
    date = (datetime.now() - timedelta(days=9)).date().isoformat()
    assert asked(spent, "--since", date)["total"]["tasks"] == 3
    assert asked(spent, "--since", "1w")["total"]["tasks"] == 2
    assert asked(spent)["total"]["tasks"] == 3


def test_a_line_for_each_day_or_model(spent: Lab) -> None:
    days = asked(spent, "--by", "day")["rows"]
    assert sum(row["tasks"] for row in days) == 3
    assert days[-1]["of"] == (datetime.now() - timedelta(days=8)).date().isoformat()
    found = asked(spent, "--by", "model")
    models = {row["of"]: row for row in found["rows"]}
    assert set(models) == {SONNET, HAIKU, "sandboxes"}
    assert models[SONNET]["model_usd"] == pytest.approx(3 * TOKENS[SONNET].usd(SONNET))
    assert models[HAIKU]["tasks"] == 1
    assert models["sandboxes"]["sandbox_usd"] == 0.875
    together = sum(row["total_usd"] for row in found["rows"])
    assert together == pytest.approx(found["total"]["total_usd"])


def test_people_see_a_table_and_what_is_not_in_it(spent: Lab) -> None:
    with spent.caller() as caller:
        done = caller.call("cost", "--since", "1d", "--by", "task")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[0] == ["task", "tasks", "model", "sandboxes", "total", "USD", "estimate"]
    assert [line[0] for line in lines[1:]] == ["new", "running", "total"]
    assert lines[1][-1] == "~9.00"
    for said in (
        "by the prices of 2026-11-16",
        "Claude Code's own figure for its runs, and in no sum",
        "1 has not ended",
        "1 has no cost",
    ):
        assert said in done.stderr


def test_more_tasks_than_are_read_at_once(lab: Lab) -> None:
    for number in range(103):
        lab.put(f"task-{number}", "SUCCEEDED", ago(minutes=number), cost={"model_usd": 0.5})
    assert asked(lab, "--by", "task")["total"] == {
        "of": "total",
        "tasks": 103,
        "model_usd": 51.5,
        "sandbox_usd": 0.0,
        "total_usd": 51.5,
        "estimate_usd": None,
    }


def test_nothing_was_spent_or_asked_for_wrongly(lab: Lab) -> None:
    with lab.caller() as caller:
        done = caller.call("cost")
        assert (done.returncode, done.stdout) == (0, "")
        assert "has a cost" in done.stderr
        said = caller.refused("cost", "--since", "yesterday")
        assert said == "--since yesterday: must be such as 7d, 12h, 2w or 2026-11-01."
