"""What a person reads first: the verdict, the checks with counts, what failed, what fixed it."""

import re
from typing import Any

from autocoder.summary import as_lines, as_markdown, summarize

COST = {"total_usd": 0.6, "model_usd": 0.5, "sandbox_usd": 0.1, "estimate_usd": 0.4}
EVIL = "x`|\n# <script>[a](http://b)\x1b[2J"


def check(name: str, status: str = "passed", **fields: Any) -> dict[str, Any]:
    return {"name": name, "command": "c", "status": status, "seconds": 1.0, **fields}


def counted(ran: int, failed: int = 0, skipped: int = 0) -> dict[str, Any]:
    counts = {"ran": ran, "failed": failed, "skipped": skipped}
    return check("test", "failed" if failed else "passed", tests=counts)


def iteration(number: int, *checks: Any, changed: Any = ("a.py",), **more: Any) -> dict[str, Any]:
    agent = {"outcome": "success", "turns": 2, "changed": list(changed)}
    own = {"iteration": number, "agent": agent, "checks": list(checks), "findings": []}
    return {**own, "checked": True, "clean_room": None, **more}


def result(*iterations: dict[str, Any], **more: Any) -> dict[str, Any]:
    own: dict[str, Any] = {
        "task_id": "t",
        "status": "SUCCEEDED",
        "failure": None,
        "iterations": [*iterations],
    }
    own |= {"cost": COST, "seconds": 84.2, "evidence_key": "f" * 64, "files": []}
    return {**own, **more}


def rows(content: dict[str, Any]) -> dict[str, str]:
    return {row.label: f"{row.mark} {row.says}" for row in summarize(content).rows}


def test_the_checks_that_count_are_those_of_the_clean_room() -> None:
    afresh = [check("build"), counted(5, skipped=1), check("acceptance", tests=counted(2)["tests"])]
    content = result(iteration(1, check("build"), counted(9), clean_room=afresh))
    assert rows(content) == {
        "Tests": "✓ 5 passed, 1 skipped, 1.0 s",
        "Build": "✓ passed, 1.0 s",
        "Types": "- not checked",
        "Lint": "- not checked",
        "Acceptance": "✓ 2 passed, 1.0 s",
        "Clean room": "✓ 3 of 3 checks passed in a sandbox that the agent never touched",
    }


def test_what_failed_says_how() -> None:
    checks = [check("install"), check("types", "timed_out"), counted(3, failed=2)]
    found = rows(result(iteration(1, *checks, check("lint", "not_run"))))
    assert found["Tests"] == "✗ 2 of 3 failed, 1.0 s"
    assert found["Types"] == "✗ timed out, 1.0 s"
    assert found["Lint"] == "- not run: what comes before it failed"
    assert found["Install"] == "✓ passed, 1.0 s"
    assert found["Clean room"] == "- not reached"


def test_a_runner_that_fails_although_no_test_did_is_no_success() -> None:
    odd = check("test", "failed", tests={"ran": 3, "failed": 0, "skipped": 0})
    assert rows(result(iteration(1, odd)))["Tests"] == "✗ failed (3 passed), 1.0 s"


def test_iterations_tell_what_failed_and_what_fixed_it() -> None:
    told = summarize(
        result(
            iteration(1, check("build", "failed"), counted(3, failed=1)),
            iteration(2, check("build"), counted(3), clean_room=[counted(3, failed=1)]),
            iteration(3, check("build"), counted(3), clean_room=[check("build"), counted(3)]),
            iteration(4, checked=False),
        )
    ).rounds
    assert [one.fixed for one in told] == [[], [], ["test"], []]
    assert told[0].says == "not passed: build failed, 1.0 s; test 1 of 3 failed, 1.0 s"
    assert told[1].says == "not passed in the clean room: test 1 of 3 failed, 1.0 s"
    assert told[2].says == "every check passed, also in the clean room"
    assert told[3].says == "cut short before its checks (success)"


def test_the_verdict_comes_first_and_the_evidence_last() -> None:
    failure = {"code": "checks_failed", "message": "No iteration is left.", "hint": "Look."}
    content = result(iteration(1, counted(1, failed=1)), status="FAILED", failure=failure)
    page = as_markdown(summarize(content)).splitlines()
    assert page[0] == "# FAILED in iteration 1: t"
    assert page[2] == "**checks_failed**: No iteration is left. Look."
    lines = as_lines(summarize(content))
    assert lines[0] == ("result", "FAILED in iteration 1")
    assert lines[1] == ("failure", "checks_failed: No iteration is left.")
    assert lines[-2] == (
        "cost",
        "0.6000 USD (model 0.5000, which Claude Code estimates at 0.4000; sandboxes 0.1000), "
        "1 min 24 s",
    )
    assert lines[-1] == ("evidence", f"evidence.json, signed with the key {'f' * 64}")


def test_a_task_that_was_cancelled_before_anything_has_a_summary_too() -> None:
    content = result(status="CANCELLED", seconds=3)
    assert as_markdown(summarize(content)).startswith("# CANCELLED: t\n")
    assert ("tests", "- none ran") in as_lines(summarize(content))


def test_what_others_wrote_does_no_harm_in_markdown() -> None:
    failure = {"code": "agent_refused", "message": EVIL, "hint": ""}
    files = [{"path": EVIL, "bytes": 1}]
    content = result(iteration(1, counted(1), changed=[EVIL]), failure=failure, files=files)
    page = as_markdown(summarize(content))
    assert "\x1b" not in page
    assert not re.search(r"^# <", page, re.MULTILINE)
    outside_of_code = re.sub(r"`[^`\n]*`", "", page)
    assert not re.search(r"(?<!\\)[<\[]", outside_of_code)
    (row,) = [line for line in page.splitlines() if line.endswith("| 1 |")]
    assert row.count("|") == 3  # one row of two cells


def test_a_project_of_many_files_is_cut_to_what_can_be_read() -> None:
    files = [{"path": f"{number}.py", "bytes": 1234} for number in range(1000)]
    summary = summarize(result(iteration(1, counted(1)), files=files))
    assert len(as_lines(summary)) < 40
    assert ("files", "1000 in the project") in as_lines(summary)
    assert "| and 800 more | |" in as_markdown(summary)
    assert "| `0.py` | 1,234 |" in as_markdown(summary)
