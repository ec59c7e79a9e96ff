"""What a person reads first: summary.md, and the end of `autocoder run`.

`summarize` makes the data, once; each renderer makes what others wrote harmless in its own way.
"""

from typing import Any, Literal

from autocoder.checks import CheckResult, Finding
from autocoder.model import Frozen
from autocoder.text import code_markdown, plain_markdown

Mark = Literal["✓", "✗", "-"]

# The rows that every summary has, with what is said where there was no such check.
ROWS = {
    "test": ("Tests", "none ran"),
    "build": ("Build", "no build step"),
    "types": ("Types", "not checked"),
    "lint": ("Lint", "not checked"),
    "acceptance": ("Acceptance", "no hidden tests were sent"),
}
AFRESH = "Clean room"
FILES_AT_MOST = 200  # in summary.md; the rest are in manifest.json


class Row(Frozen):
    """A check, how it went, and the figures."""

    label: str
    mark: Mark
    says: str


class Round(Frozen):
    """An iteration: what the agent changed, what that fixed, and what then failed."""

    number: int
    changed: list[str]
    fixed: list[str]
    says: str
    findings: list[Finding]


class Summary(Frozen):
    """A result, in the order in which it is read."""

    task_id: str
    verdict: str
    failure: dict[str, str] | None
    rows: list[Row]
    files: list[tuple[str, int]]
    rounds: list[Round]
    cost: str
    evidence: str


def summarize(result: dict[str, Any]) -> Summary:
    """Choose from a result.json what a person wants to know."""
    iterations = result["iterations"]
    last = iterations[-1] if iterations else {"checks": [], "clean_room": None}
    number = f" in iteration {last['iteration']}" if iterations else ""
    minutes, seconds = divmod(round(result["seconds"]), 60)
    return Summary(
        task_id=result["task_id"],
        verdict=f"{result['status']}{number}",
        failure=result["failure"],
        rows=rows(last),
        files=[(file["path"], file["bytes"]) for file in result["files"]],
        rounds=rounds(iterations),
        cost=in_dollars(result["cost"])
        + (f", {minutes} min {seconds} s" if minutes else f", {seconds} s"),
        evidence=f"evidence.json, signed with the key {result['evidence_key']}",
    )


def in_dollars(cost: dict[str, Any]) -> str:
    """Say what a task cost, and what of it for what."""
    total, model, sandbox, guess = (
        f"{cost[name]:.4f}" for name in ("total_usd", "model_usd", "sandbox_usd", "estimate_usd")
    )
    parts = f"model {model}, which Claude Code estimates at {guess}; sandboxes {sandbox}"
    return f"{total} USD ({parts})"


def rows(iteration: dict[str, Any]) -> list[Row]:
    """Say how each check went where it counts: in the clean room, once the project was there."""
    afresh = iteration["clean_room"]
    found = checks_of(afresh if afresh is not None else iteration["checks"])
    named = [
        row(found[name], label) if name in found else Row(label=label, mark="-", says=absent)
        for name, (label, absent) in ROWS.items()
    ]
    others = [row(check, name.capitalize()) for name, check in found.items() if name not in ROWS]
    return [*named, *others, clean_room(afresh)]


def checks_of(checks: list[dict[str, Any]]) -> dict[str, CheckResult]:
    """Read the checks of a result.json, by name."""
    return {check["name"]: CheckResult.model_validate(check) for check in checks}


def row(check: CheckResult, label: str) -> Row:
    """Say how a check went, with what was counted."""
    marks: dict[str, Mark] = {"passed": "✓", "not_run": "-"}
    return Row(label=label, mark=marks.get(check.status, "✗"), says=in_figures(check))


def in_figures(check: CheckResult) -> str:
    """Say a check in a few words, with its counts and its time."""
    if check.status == "not_run":
        return "not run: what comes before it failed"
    said = check.status.replace("_", " ")
    if check.tests:
        ran, failed, skipped = check.tests.ran, check.tests.failed, check.tests.skipped
        said = f"{failed} of {ran} failed" if failed else f"{ran} passed"
        said += f", {skipped} skipped" if skipped else ""
        if check.status not in ("passed", "failed") or (check.status == "failed" and not failed):
            said = f"{check.status.replace('_', ' ')} ({said})"
    return f"{said}, {check.seconds:.1f} s"


def clean_room(checks: list[dict[str, Any]] | None) -> Row:
    """Say whether all of it held where the agent never was."""
    if checks is None:
        return Row(label=AFRESH, mark="-", says="not reached")
    failed = [name for name, check in checks_of(checks).items() if check.status != "passed"]
    if failed:
        return Row(label=AFRESH, mark="✗", says=f"not passed: {', '.join(failed)}")
    says = f"{len(checks)} of {len(checks)} checks passed in a sandbox that the agent never touched"
    return Row(label=AFRESH, mark="✓", says=says)


def rounds(iterations: list[dict[str, Any]]) -> list[Round]:
    """Tell the iterations: what failed, and what fixed it."""
    told: list[Round] = []
    before: list[str] = []
    for iteration in iterations:
        afresh = iteration["clean_room"]
        checks = checks_of(afresh if afresh is not None else iteration["checks"])
        failed = {n: c for n, c in checks.items() if c.status not in ("passed", "not_run")}
        where = " in the clean room" if afresh is not None else ""
        if not iteration["checked"]:
            says = f"cut short before its checks ({iteration['agent'].get('outcome') or 'ended'})"
        elif failed:
            listed = "; ".join(f"{name} {in_figures(check)}" for name, check in failed.items())
            says = f"not passed{where}: {listed}"
        else:
            says = "every check passed" + (", also in the clean room" if where else "")
        fixed = [name for name in before if name in checks and checks[name].status == "passed"]
        changed = iteration["agent"]["changed"]
        told.append(
            Round(
                number=iteration["iteration"],
                changed=changed,
                fixed=fixed,
                says=says,
                findings=iteration["findings"],
            )
        )
        before = list(failed)
    return told


def as_markdown(summary: Summary) -> str:
    """Write summary.md."""
    lines = [f"# {summary.verdict}: {summary.task_id}", ""]
    if failure := summary.failure:
        said = plain_markdown(f"{failure['message']} {failure['hint']}")
        lines += [f"**{failure['code']}**: {said}", ""]
    lines += ["| check | | |", "|---|---|---|"]
    lines += [f"| {row.label} | {row.mark} | {plain_markdown(row.says)} |" for row in summary.rows]
    lines += ["", "## Iterations", ""]
    for told in summary.rounds:
        changed = ", ".join(map(code_markdown, told.changed)) or "nothing"
        fixed = f", which fixed {', '.join(told.fixed)}" if told.fixed else ""
        says = plain_markdown(told.says[0].upper() + told.says[1:])
        lines.append(f"{told.number}. Changed {changed}{fixed}. {says}.")
        lines += [
            f"   - {one.verdict}: {code_markdown(one.rule)}: {plain_markdown(one.where + one.what)}"
            for one in told.findings
        ]
    lines += ["", "## Files", "", "| file | bytes |", "|---|---:|"]
    shown = summary.files[:FILES_AT_MOST]
    lines += [f"| {code_markdown(path)} | {size:,} |" for path, size in shown]
    if len(summary.files) > len(shown):
        lines.append(f"| and {len(summary.files) - len(shown)} more | |")
    lines += ["", f"Cost and time: {summary.cost}.", ""]
    lines += [f"Evidence: {summary.evidence}. `autocoder verify DIR` checks it.", ""]
    return "\n".join(lines)


def as_lines(summary: Summary) -> list[tuple[str, str]]:
    """Write the end of `autocoder run`: subjects, each with a line."""
    lines = [("result", summary.verdict)]
    if failure := summary.failure:
        lines += [("failure", f"{failure['code']}: {failure['message']}"), ("", failure["hint"])]
    lines += [(row.label.lower(), f"{row.mark} {row.says}") for row in summary.rows]
    for told in summary.rounds:
        some = ", ".join(told.changed[:3]) or "nothing"
        more = f" and {len(told.changed) - 3} more" if len(told.changed) > 3 else ""
        fixed = f", which fixed {', '.join(told.fixed)}" if told.fixed else ""
        lines.append((f"iteration {told.number}", f"changed {some}{more}{fixed}; {told.says}"))
        lines += [
            ("", f"{one.verdict}: {one.rule}: {one.where}{one.what}") for one in told.findings
        ]
    lines += [("files", f"{len(summary.files)} in the project")] if summary.files else []
    lines += [("", f"{size:>8,}  {path}") for path, size in summary.files[:20]]
    if len(summary.files) > 20:
        lines.append(("", f"{'':>8}  and {len(summary.files) - 20} more"))
    return [*lines, ("cost", summary.cost), ("evidence", summary.evidence)]
