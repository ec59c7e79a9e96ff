"""`autocoder record`: a task that a model worked on becomes a scenario, to be replayed without."""

import json
import sys
from pathlib import Path

from autocoder.cli.problems import UsageError
from autocoder.local.recorded import scenario_of


def record_task(task: str, folder: Path | None, *, as_json: bool = False) -> int:
    """Write the scenario, and say how it is replayed."""
    folder = folder or Path("scenarios") / task
    scenario = scenario_of(task, folder.resolve().name)
    text = json.dumps(scenario.model_dump(exclude_defaults=True), indent=2, ensure_ascii=False)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "scenario.json").open("x") as file:
            file.write(text + "\n")
    except OSError as error:
        reason = f"{folder}/scenario.json can't be written: {error.strerror}"
        raise UsageError(f"{reason}; name another folder with --as DIR.") from None
    if as_json:
        steps_of = [len(run) for run in scenario.runs]
        made = {"scenario": str(folder), "planned": scenario.plan is not None, "steps": steps_of}
        sys.stdout.write(json.dumps(made) + "\n")
        return 0
    plan = "a plan and " if scenario.plan else ""
    steps = ", ".join(f"{len(run)} steps" for run in scenario.runs)
    sys.stdout.write(f"{folder}/scenario.json: {plan}{len(scenario.runs)} runs ({steps})\n")
    sys.stdout.write(f"replay it: autocoder run --scenario {folder}\n")
    return 0
