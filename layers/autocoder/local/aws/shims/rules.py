"""EventBridge: delivery and schedules."""

from typing import Any

from autocoder.local.aws import events
from autocoder.local.aws.shims.hooks import Hooks


def deliver_events(hooks: Hooks) -> None:
    """moto refuses Lambda targets, and sends disabled rules and schedules every event."""
    from moto.events.models import Rule

    def send_to_targets(self: Any, original_event: dict[str, Any], *_: Any, **__: Any) -> None:
        if self.event_pattern.get_pattern() and self.event_pattern.matches_event(original_event):
            event = {k: v for k, v in original_event.items() if k != "ingestion-time"}
            hooks.event_matched(self, event | {"time": events.iso(event["time"])})

    Rule.send_to_targets = send_to_targets


def fire_schedules(hooks: Hooks) -> None:
    """moto records schedules and never fires one."""
    from moto.events.models import EventsBackend

    put = EventsBackend.put_rule

    def put_rule(self: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        rule = put(self, name, *args, **kwargs)
        if rule.scheduled_expression:
            bus = self.describe_event_bus("default")
            hooks.schedule_added(rule, lambda: bus.rules.get(rule.name) is rule)
        return rule

    EventsBackend.put_rule = put_rule
