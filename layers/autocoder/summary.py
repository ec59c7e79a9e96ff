"""The page that a person reads first: summary.md."""

from typing import Any

from autocoder.checks import CheckResult


def write_summary(result: dict[str, Any]) -> str:
    """Write the summary of a result.json."""
    failure = result["failure"]
    lines = [f"# {result['task_id']}: {result['status']}", ""]
    if failure:
        lines += [f"{failure['message']} {failure['hint']}", ""]
    lines += ["## Iterations", ""]
    for iteration in result["iterations"]:
        found = [CheckResult.model_validate(check) for check in iteration["checks"]]
        checks = "; ".join(f"{check.name} {check.in_words()}" for check in found)
        lines.append(f"{iteration['iteration']}. {checks}")
    lines += ["", "## Files", "", "| file | bytes |", "|---|---|"]
    lines += [f"| {file['path']} | {file['bytes']} |" for file in result["files"]]
    lines += ["", f"Model: {result['cost']['model_usd']:.4f} USD, by the CLI's own estimate.", ""]
    return "\n".join(lines)
