"""EventBridge: what matches a rule is delivered to its targets, and schedules fire."""

import json
import logging
import os
import re
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from jsonpath_ng.parser import parse as jsonpath

log = logging.getLogger(__name__)

Event = dict[str, Any]
Deliver = Callable[[str, str], object]
"""Takes the target's ARN and the input as JSON."""

ATTEMPTS = 4
FIRST_DELAY = 0.2
RATE = re.compile(r"rate\((\d+) (minute|hour|day)s?\)")
SECONDS = {"minute": 60, "hour": 3600, "day": 86400}


class Delivery:
    """Takes events to targets, by the service in the target's ARN."""

    def __init__(self, services: dict[str, Deliver]) -> None:
        self._services = services
        self._threads = ThreadPoolExecutor(max_workers=8, thread_name_prefix="events")

    def send(self, rule: Any, event: Event) -> None:
        """Deliver one event to all targets of a rule, without keeping the sender waiting."""
        if rule.state == "ENABLED":
            for target in rule.targets:
                self._threads.submit(self._deliver, rule.name, target, event)

    def _deliver(self, rule: str, target: dict[str, Any], event: Event) -> None:
        arn, reason = target["Arn"], ""
        try:
            payload = target_input(target, event)
            deliver = self._services[arn.split(":")[2]]
        except Exception as error:
            log.exception("rule %s: no delivery to %s is possible: %r", rule, arn, error)
            return
        for attempt in range(ATTEMPTS):
            try:
                deliver(arn, payload)
                return
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
                log.warning("rule %s: delivery to %s failed: %s", rule, arn, reason)
                time.sleep(FIRST_DELAY * 2**attempt)
        log.error("rule %s: gave up the delivery to %s: %s", rule, arn, reason)


class Scheduler:
    """Fires rules that have a `rate(…)`."""

    def __init__(self, send: Callable[[Any, Event], None]) -> None:
        self._send = send
        self._speedup = float(os.environ.get("AUTOCODER_SCHEDULE_SPEEDUP", "1"))

    def add(self, rule: Any, is_current: Callable[[], bool]) -> None:
        """Fire a rule until it is no longer the current one of its name."""
        match = RATE.fullmatch(rule.scheduled_expression)
        if match is None:
            log.warning(
                "rule %s: %s is not fired by the local cloud, only rate(…) is",
                *(rule.name, rule.scheduled_expression),
            )
            return
        period = int(match[1]) * SECONDS[match[2]] / self._speedup
        threading.Thread(
            target=self._fire, args=(rule, period, is_current), name=rule.name, daemon=True
        ).start()

    def _fire(self, rule: Any, period: float, is_current: Callable[[], bool]) -> None:
        due = time.monotonic()
        while True:
            due = max(due + period, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))
            if not is_current():
                return
            self._send(rule, _scheduled_event(rule))


def _scheduled_event(rule: Any) -> Event:
    return {
        "version": "0",
        "id": str(uuid.uuid4()),
        "detail-type": "Scheduled Event",
        "source": "aws.events",
        "account": rule.account_id,
        "time": iso(time.time()),
        "region": rule.region_name,
        "resources": [rule.arn],
        "detail": {},
    }


def iso(moment: float | datetime) -> str:
    timestamp = moment.timestamp() if isinstance(moment, datetime) else float(moment)
    return datetime.fromtimestamp(timestamp, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def target_input(target: dict[str, Any], event: Event) -> str:
    """What the target receives: the event, or what the rule makes of it."""
    if "Input" in target:
        return str(target["Input"])
    if "InputPath" in target:
        return json.dumps(_select(target["InputPath"], event))
    if transformer := target.get("InputTransformer"):
        paths = transformer.get("InputPathsMap", {})
        values = {name: _select(path, event) for name, path in paths.items()}
        return fill(transformer["InputTemplate"], values)
    return json.dumps(event)


def fill(template: str, values: dict[str, Any]) -> str:
    """Replace `<name>`: inside a JSON string by its text, elsewhere by its JSON."""

    def value(match: re.Match[str]) -> str:
        found = values.get(match[1])
        before = template[: match.start()]
        in_string = len(re.findall(r'(?<!\\)"', before)) % 2 == 1
        if not in_string:
            return json.dumps(found)
        text = found if isinstance(found, str) else json.dumps(found)
        return json.dumps(text)[1:-1]

    return re.sub(r"<([\w.-]+)>", value, template)


def _select(path: str, event: Event) -> Any:
    # EventBridge allows hyphens in a bare name, JSONPath does not.
    quoted = re.sub(r"\.([\w-]*-[\w-]*)", r".'\1'", path)
    found = jsonpath(quoted).find(event)
    return found[0].value if found else None


def execution_detail(execution: Any) -> Event:
    """The `Step Functions Execution Status Change` of an execution, as its detail."""
    status = execution.status
    finished = execution.stop_date is not None and status != "RUNNING"
    output = execution.output if status == "SUCCEEDED" else None
    included = {"included": True}
    return {
        "executionArn": execution.exec_arn,
        "stateMachineArn": execution.state_machine.arn,
        "stateMachineVersionArn": None,
        "stateMachineAliasArn": None,
        "name": execution.name,
        "status": status,
        "startDate": int(execution.start_date.timestamp() * 1000),
        "stopDate": int(execution.stop_date.timestamp() * 1000) if finished else None,
        "input": execution.execution_input,
        "inputDetails": included,
        "output": None if output is None else json.dumps(output),
        "outputDetails": None if output is None else included,
        "error": execution.error,
        "cause": execution.cause,
        "redriveCount": 0,
        "redriveDate": None,
        "redriveStatus": "NOT_REDRIVABLE",
        "redriveStatusReason": None,
    }


def execution_entry(execution: Any) -> dict[str, Any]:
    """The PutEvents entry that Step Functions makes when an execution's status changes."""
    return {
        "Source": "aws.states",
        "DetailType": "Step Functions Execution Status Change",
        "Resources": [execution.exec_arn],
        "Detail": json.dumps(execution_detail(execution)),
    }


def now() -> datetime:
    return datetime.now(UTC)
