"""The page that a person reads first: summary.md."""

from typing import Any

from autocoder.checks import CheckResult, Finding


def write_summary(result: dict[str, Any]) -> str:
    """Write the summary of a result.json."""
    failure = result["failure"]
    lines = [f"# {result['task_id']}: {result['status']}", ""]
    if failure:
        lines += [f"{failure['message']} {failure['hint']}", ""]
    lines += ["## Iterations", ""]
    for iteration in result["iterations"]:
        lines.append(f"{iteration['iteration']}. {in_words(iteration['checks'])}")
        if iteration["clean_room"]:
            lines.append(f"   In the clean room: {in_words(iteration['clean_room'])}")
        for finding in map(Finding.model_validate, iteration["findings"]):
            allowed = "Allowed" if finding.allowed else "Broken"
            lines.append(f"   {allowed}: `{finding.rule}`: {finding.where}{finding.what}")
    lines += ["", "## Files", "", "| file | bytes |", "|---|---|"]
    lines += [f"| {file['path']} | {file['bytes']} |" for file in result["files"]]
    lines += ["", f"Model: {result['cost']['model_usd']:.4f} USD, by the CLI's own estimate.", ""]
    return "\n".join(lines)


def in_words(checks: list[dict[str, Any]]) -> str:
    """Say in one line what checks found."""
    found = [CheckResult.model_validate(check) for check in checks]
    return "; ".join(f"{check.name} {check.in_words()}" for check in found)
