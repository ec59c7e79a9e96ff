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


def found(rule: str, *, allowed: bool, path: str = "test_a.py") -> dict[str, Any]:
    return {"rule": rule, "path": path, "what": "the file is gone", "allowed": allowed}


def iteration(number: int, *checks: Any, **more: Any) -> dict[str, Any]:
    agent = {"outcome": "success", "turns": 2}
    own = {"iteration": number, "agent": agent, "checks": list(checks), "findings": []}
    changes = {"changed": ["a.py"]}
    return {**own, "changes": changes, "checked": True, "clean_room": None, **more}


def result(*iterations: dict[str, Any], **more: Any) -> dict[str, Any]:
    own: dict[str, Any] = {
        "task_id": "t",
        "status": "SUCCEEDED",
        "failure": None,
        "iterations": [*iterations],
    }
    own |= {"software": {"model": "claude-x", "replayed": False}}
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
        "Tamper": "✓ no rule broken",
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
            iteration(2, check("build"), clean_room=[check("build"), counted(3, failed=1)]),
            iteration(3, check("build"), counted(3), clean_room=[check("build"), counted(3)]),
            iteration(4, checked=False),
        )
    ).rounds
    assert [one.fixed for one in told] == [[], ["build"], ["test"], []]
    assert told[0].says == "not passed: build failed, 1.0 s; test 1 of 3 failed, 1.0 s"
    assert told[1].says == "not passed in the clean room: test 1 of 3 failed, 1.0 s"
    assert told[2].says == "every check passed, also in the clean room"
    assert told[3].says == "cut short before its checks (success)"


def test_what_breaks_a_rule_fixes_nothing_until_an_honest_iteration_does() -> None:
    for allowed in (False, True):
        gone = [found("tests_deleted", allowed=allowed)]
        told = summarize(
            result(
                iteration(1, counted(2, failed=1)),
                iteration(2, counted(1), findings=gone),
                iteration(3, counted(2)),
            )
        ).rounds
        assert [one.fixed for one in told] == [[], [], ["test"]]


def test_an_iteration_tells_what_became_of_the_files() -> None:
    changes = {"added": ["b"], "changed": ["c", "d"], "deleted": ["test_a.py"], "more": 2}
    summary = summarize(
        result(iteration(1, counted(1), changes=changes), iteration(2, counted(1), changes={}))
    )
    page, lines = as_markdown(summary), dict(as_lines(summary))
    assert "1. Added `b`; changed `c`, `d`; deleted `test_a.py` and 2 more. Every" in page
    assert "2. Changed nothing. Every" in page
    assert lines["iteration 1"].startswith("added b; changed c, d and 3 more; every")
    cut_short = summarize(result(iteration(1, changes=None, checked=False)))
    assert "1. Left no checkpoint. Cut short" in as_markdown(cut_short)


def test_rules_that_were_allowed_are_seen_first() -> None:
    gone = [found("tests_deleted", allowed=True), found("tests_fewer", allowed=True, path="")]
    red = iteration(1, counted(2, failed=1), findings=gone)
    content = result(red, iteration(2, counted(1)))  # the next is compared with the one allowed
    assert rows(content)["Tamper"] == "! allowed: tests_deleted, tests_fewer"
    page = as_markdown(summarize(content))
    assert page.startswith("# SUCCEEDED in iteration 2 with 2 rules allowed: t\n")
    assert "| Tamper | ! | allowed: `tests_deleted`, `tests_fewer` |" in page
    assert "   - Allowed: `tests_deleted`: `test_a.py`: the file is gone\n" in page
    assert as_lines(summarize(content))[0] == (
        "result",
        "SUCCEEDED in iteration 2 with 2 rules allowed",
    )
    assert summarize({**content, "status": "FAILED"}).verdict == "FAILED in iteration 2"


def test_rules_that_are_broken_are_one_row() -> None:
    broken = [found("tests_fewer", allowed=True), found("tests_deleted", allowed=False)]
    tampered = check("tamper", "failed")
    content = result(iteration(1, counted(1), tampered, findings=broken), status="FAILED")
    assert rows(content)["Tamper"] == "✗ broken: tests_deleted; allowed: tests_fewer"
    assert [row.label for row in summarize(content).rows].count("Tamper") == 1
    later = result(iteration(1, counted(1), tampered, findings=broken[1:]), iteration(2))
    assert rows(later)["Tamper"] == "✓ no rule broken"
    assert rows(result())["Tamper"] == "- not looked at"


def test_tests_that_failed_are_named_with_the_first_line_of_what_they_say() -> None:
    tests = {**counted(5, failed=4), "failures": [[f"test_{n}", "\nno\nmore"] for n in range(4)]}
    summary = summarize(result(iteration(1, tests)))
    page = as_markdown(summary)
    assert "   - Failed: `test_0`: `no`\n   - Failed: `test_1`: `no`\n" in page
    assert page.count("Failed: ") == 3
    assert ("", "Failed: test_2: no") in as_lines(summary)


def test_what_no_model_answered_is_said_to_be_replayed() -> None:
    replayed = result(software={"model": "claude-x", "replayed": True})
    assert "\nModel: claude-x, replayed from a scenario.\n" in as_markdown(summarize(replayed))
    assert ("model", "claude-x") in as_lines(summarize(result()))


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
    tests = {**counted(1, failed=1), "failures": [[EVIL, EVIL]]}
    broken = [{**found("tests_fewer", allowed=False, path=EVIL), "what": EVIL}]
    changes = {"added": [EVIL], "deleted": [EVIL]}
    hostile = iteration(1, tests, changes=changes, findings=broken)
    software = {"model": EVIL, "replayed": False}
    content = result(hostile, failure=failure, files=files, software=software)
    page = as_markdown(summarize(content))
    assert "\x1b" not in page
    assert not re.search(r"^# <", page, re.MULTILINE)
    outside_of_code = re.sub(r"`[^`\n]*`", "", page)
    assert not re.search(r"(?<!\\)[<\[`]", outside_of_code)
    (row,) = [line for line in page.splitlines() if line.endswith("| 1 |")]
    assert row.count("|") == 3  # one row of two cells


def test_a_project_of_many_files_is_cut_to_what_can_be_read() -> None:
    files = [{"path": f"{number}.py", "bytes": 1234} for number in range(1000)]
    summary = summarize(result(iteration(1, counted(1)), files=files))
    assert len(as_lines(summary)) < 40
    assert ("files", "1000 in the project") in as_lines(summary)
    assert "| and 800 more | |" in as_markdown(summary)
    assert "| `0.py` | 1,234 |" in as_markdown(summary)
