"""Execution FAILED, TIMED_OUT or ABORTED → here: ends its task, if FinishTask could not.

An abort and the machine's own time-out run no Catch. A task that has ended is left as it is.
"""

from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from autocoder.ending import end_stranded
from autocoder.services import Services, connected, logger
from autocoder.task import TERMINAL, attempt_of


def run(detail: dict[str, Any], services: Services) -> str | None:
    """End the task of an execution; say how it ended, or None if there was nothing to end."""
    attempt = attempt_of(detail["name"])
    record = services.tasks.get(attempt[0]) if attempt else None
    if not attempt or not record or record["attempt"] != attempt[1]:
        logger.info("no task runs by this execution", extra={"execution": detail["name"]})
        return None
    if record["status"] in TERMINAL:
        logger.info("ended already", extra={"execution": detail["name"]})
        return None
    why = ": ".join(detail[key] for key in ("error", "cause") if detail.get(key))
    reason = f"The execution ended as {detail['status']} before the task did. {why[:500]}".strip()
    return end_stranded(*attempt, reason, services).status


@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, str | None]:
    """Take a status change of Step Functions."""
    return {"ended_as": run(event["detail"], connected())}
