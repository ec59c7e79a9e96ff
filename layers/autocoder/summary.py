"""What a person reads first: summary.md, and the end of `autocoder run`.

`summarize` makes the data, once; each renderer makes what others wrote harmless in its own way.
"""

from collections.abc import Callable
from typing import Any, Literal

from autocoder.changes import Changes
from autocoder.checks import CheckResult, Finding
from autocoder.model import Frozen
from autocoder.text import code_markdown, plain_markdown

Mark = Literal["✓", "✗", "!", "-"]

# The rows that every summary has, with what is said where there was no such check.
ROWS = {
    "test": ("Tests", "none ran"),
    "build": ("Build", "no build step"),
    "types": ("Types", "not checked"),
    "lint": ("Lint", "not checked"),
    "acceptance": ("Acceptance", "no hidden tests were sent"),
}
TAMPER = "tamper"  # the check that is there only if it failed: it has a row of its own
AFRESH = "Clean room"
FILES_AT_MOST = 200  # in summary.md; the rest are in manifest.json
CHANGES_AT_MOST = {"page": 20, "terminal": 3}  # files by name an iteration
FAILURES_AT_MOST = 3  # tests by name an iteration


class Row(Frozen):
    """A check, how it went, and the figures."""

    label: str
    mark: Mark
    says: str


class Round(Frozen):
    """An iteration: what became of the files, what that fixed, and what then failed."""

    number: int
    checked: bool
    changes: Changes | None
    fixed: list[str]
    says: str
    failures: list[tuple[str, str]]
    findings: list[Finding]


class Summary(Frozen):
    """A result, in the order in which it is read."""

    task_id: str
    verdict: str
    failure: dict[str, str] | None
    rows: list[Row]
    files: list[tuple[str, int]]
    rounds: list[Round]
    model: str
    cost: str
    evidence: str


def summarize(result: dict[str, Any]) -> Summary:
    """Choose from a result.json what a person wants to know."""
    iterations = result["iterations"]
    last = iterations[-1] if iterations else {"checks": [], "clean_room": None}
    number = f" in iteration {last['iteration']}" if iterations else ""
    minutes, seconds = divmod(round(result["seconds"]), 60)
    told = rounds(iterations)
    allowed = rules_of(told, allowed=True)
    return Summary(
        task_id=result["task_id"],
        verdict=f"{result['status']}{number}{with_rules(result['status'], allowed)}",
        failure=result["failure"],
        rows=[*rows(last), tamper(told, allowed), clean_room(last["clean_room"])],
        files=[(file["path"], file["bytes"]) for file in result["files"]],
        rounds=told,
        model=answered_by(result["software"]),
        cost=in_dollars(result["cost"])
        + (f", {minutes} min {seconds} s" if minutes else f", {seconds} s"),
        evidence=f"evidence.json, signed with the key {result['evidence_key']}",
    )


def with_rules(status: str, allowed: list[str]) -> str:
    """What a success is said with, if its sender let rules be broken."""
    if status != "SUCCEEDED" or not allowed:
        return ""
    return f" with {len(allowed)} rule{'s' if len(allowed) > 1 else ''} allowed"


def answered_by(software: dict[str, Any]) -> str:
    """Say who gave the agent its answers."""
    model = software["model"] or "none was asked"
    return f"{model}, replayed from a scenario" if software["replayed"] else model


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
    others = [
        row(check, name.capitalize())
        for name, check in found.items()
        if name not in ROWS and name != TAMPER
    ]
    return [*named, *others]


def checks_of(checks: list[dict[str, Any]]) -> dict[str, CheckResult]:
    """Read the checks of a result.json, by name."""
    return {check["name"]: CheckResult.model_validate(check) for check in checks}


def row(check: CheckResult, label: str) -> Row:
    """Say how a check went, with what was counted."""
    marks: dict[str, Mark] = {"passed": "✓", "not_run": "-"}
    return Row(label=label, mark=marks.get(check.status, "✗"), says=check.in_words())


def tamper(told: list[Round], allowed: list[str]) -> Row:
    """Say which rules are broken now, and which ones ever were by the sender's leave.

    An iteration is compared with the one before it: what that did by leave is found only once.
    """
    says = f"allowed: {', '.join(allowed)}" if allowed else ""
    if broken := rules_of(told[-1:], allowed=False):
        says = "; ".join(filter(None, (f"broken: {', '.join(broken)}", says)))
        return Row(label="Tamper", mark="✗", says=says)
    if says:
        return Row(label="Tamper", mark="!", says=says)
    if not told or not told[-1].checked:
        return Row(label="Tamper", mark="-", says="not looked at")
    return Row(label="Tamper", mark="✓", says="no rule broken")


def rules_of(told: list[Round], *, allowed: bool) -> list[str]:
    """Name the rules that iterations broke, with or without leave."""
    found = (one for round_ in told for one in round_.findings)
    return list(dict.fromkeys(one.rule for one in found if one.allowed is allowed))


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
    """Tell the iterations: what failed, and what fixed it.

    What breaks a rule fixes nothing, be it by leave: what failed waits for an honest iteration.
    """
    told: list[Round] = []
    waiting: dict[str, None] = {}
    for iteration in iterations:
        afresh = iteration["clean_room"]
        checks = checks_of(afresh if afresh is not None else iteration["checks"])
        failed = {n: c for n, c in checks.items() if c.status not in ("passed", "not_run")}
        where = " in the clean room" if afresh is not None else ""
        if not iteration["checked"]:
            says = f"cut short before its checks ({iteration['agent'].get('outcome') or 'ended'})"
        elif failed:
            listed = "; ".join(f"{name} {check.in_words()}" for name, check in failed.items())
            says = f"not passed{where}: {listed}"
        else:
            says = "every check passed" + (", also in the clean room" if where else "")
        passed = [name for name in waiting if name in checks and checks[name].status == "passed"]
        fixed = [] if iteration["findings"] else passed
        failures = [failure for check in failed.values() for failure in check.failures]
        told.append(
            Round(
                number=iteration["iteration"],
                checked=iteration["checked"],
                changes=iteration["changes"],
                fixed=fixed,
                says=says,
                failures=failures[:FAILURES_AT_MOST],
                findings=iteration["findings"],
            )
        )
        waiting = dict.fromkeys(name for name in [*waiting, *failed] if name not in fixed)
    return told


def in_files(changes: Changes | None, most: int, write: Callable[[str], str]) -> str:
    """Say what became of the files, with the names of some."""
    if changes is None:
        return "left no checkpoint"
    kinds = {"added": changes.added, "changed": changes.changed, "deleted": changes.deleted}
    said, left = [], most
    for kind, paths in kinds.items():
        if some := paths[:left]:
            said.append(f"{kind} {', '.join(map(write, some))}")
            left -= len(some)
    more = sum(map(len, kinds.values())) - (most - left) + changes.more
    return ("; ".join(said) + (f" and {more} more" if more else "")) or "changed nothing"


def sentence(text: str) -> str:
    """Begin a text as sentences do."""
    return text[0].upper() + text[1:]


def first_line(message: str) -> str:
    """What a test's message begins with."""
    return next((line.strip() for line in message.splitlines() if line.strip()), "failed")[:160]


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
        files = in_files(told.changes, CHANGES_AT_MOST["page"], code_markdown)
        fixed = f", which fixed {', '.join(told.fixed)}" if told.fixed else ""
        says = plain_markdown(sentence(told.says))
        lines.append(f"{told.number}. {sentence(files)}{fixed}. {says}.")
        lines += [
            f"   - Failed: {code_markdown(name)}: {code_markdown(first_line(message))}"
            for name, message in told.failures
        ]
        lines += [
            f"   - {one.verdict}: {code_markdown(one.rule)}: "
            + (f"{code_markdown(one.path)}: " if one.path else "")
            + plain_markdown(one.what)
            for one in told.findings
        ]
    lines += ["", "## Files", "", "| file | bytes |", "|---|---:|"]
    shown = summary.files[:FILES_AT_MOST]
    lines += [f"| {code_markdown(path)} | {size:,} |" for path, size in shown]
    if len(summary.files) > len(shown):
        lines.append(f"| and {len(summary.files) - len(shown)} more | |")
    lines += ["", f"Model: {plain_markdown(summary.model)}.", ""]
    lines += [f"Cost and time: {summary.cost}.", ""]
    lines += [f"Evidence: {summary.evidence}. `autocoder verify DIR` checks it.", ""]
    return "\n".join(lines)


def as_lines(summary: Summary) -> list[tuple[str, str]]:
    """Write the end of `autocoder run`: subjects, each with a line."""
    lines = [("result", summary.verdict)]
    if failure := summary.failure:
        lines += [("failure", f"{failure['code']}: {failure['message']}"), ("", failure["hint"])]
    lines += [(row.label.lower(), f"{row.mark} {row.says}") for row in summary.rows]
    for told in summary.rounds:
        files = in_files(told.changes, CHANGES_AT_MOST["terminal"], str)
        fixed = f", which fixed {', '.join(told.fixed)}" if told.fixed else ""
        lines.append((f"iteration {told.number}", f"{files}{fixed}; {told.says}"))
        lines += [("", f"Failed: {name}: {first_line(message)}") for name, message in told.failures]
        lines += [
            ("", f"{one.verdict}: {one.rule}: {one.where}{one.what}") for one in told.findings
        ]
    lines += [("files", f"{len(summary.files)} in the project")] if summary.files else []
    lines += [("", f"{size:>8,}  {path}") for path, size in summary.files[:20]]
    if len(summary.files) > 20:
        lines.append(("", f"{'':>8}  and {len(summary.files) - 20} more"))
    lines += [("model", summary.model), ("cost", summary.cost)]
    return [*lines, ("evidence", summary.evidence)]
