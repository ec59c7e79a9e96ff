"""How tasks come in: the queue, its dead letters, start_task; and when dispatch_tasks runs."""

from aws_cdk import Duration, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda_event_sources as sources
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from autocoder.ports.events import SOURCE
from infra.explained import explain
from infra.steps import FUNCTIONS, Steps

DISPATCH_EVERY = Duration.minutes(1)
RECEIVES = 20  # two hours: only an outage of ours uses them up

# A place in line or a free slot: both are reasons to look whether a task can start.
ROOM_OR_WORK = ["Task Queued", "Task Succeeded", "Task Failed", "Task Cancelled"]


class Intake(Construct):
    """The door of the service."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        steps: Steps,
        machine: sfn.StateMachine,
        max_running: int,
    ) -> None:
        """What is not accepted goes to the dead letters at once; what finds us down, in the end."""
        super().__init__(scope, id)
        self.dead_letters = sqs.Queue(
            self,
            "TaskDeadLetters",
            retention_period=Duration.days(14),
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
        )
        explain(self.dead_letters, {"SQS3": "It is the queue of dead letters."})
        self.queue = sqs.Queue(
            self,
            "TaskQueue",
            # AWS's advice: six times the function's time-out, or messages come twice.
            visibility_timeout=Duration.seconds(6 * FUNCTIONS["start_task"].timeout_s),
            # Shorter than the dead letters': a message's age goes with it.
            retention_period=Duration.days(7),
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            dead_letter_queue=sqs.DeadLetterQueue(
                queue=self.dead_letters, max_receive_count=RECEIVES
            ),
        )
        self._start(steps)
        self._dispatch(steps, machine, max_running)

    def _start(self, steps: Steps) -> None:
        function = steps["start_task"]
        function.add_event_source(
            sources.SqsEventSource(
                self.queue, batch_size=10, report_batch_item_failures=True, max_concurrency=5
            )
        )
        function.add_environment("DEAD_LETTERS_URL", self.dead_letters.queue_url)
        self.dead_letters.grant_send_messages(function)

    def _dispatch(self, steps: Steps, machine: sfn.StateMachine, max_running: int) -> None:
        function = steps["dispatch_tasks"]
        function.add_environment("STATE_MACHINE_ARN", machine.state_machine_arn)
        function.add_environment("MAX_RUNNING", str(max_running))
        machine.grant_start_execution(function)
        own = {"stack": [Stack.of(self).stack_name]}
        pattern = events.EventPattern(source=[SOURCE], detail_type=ROOM_OR_WORK, detail=own)
        every_minute = events.Schedule.rate(DISPATCH_EVERY)
        target = targets.LambdaFunction(function)
        why = "A task waits or a slot is free: dispatch_tasks looks whether one can start."
        events.Rule(self, "OnRoomOrWork", event_pattern=pattern, targets=[target], description=why)
        why = "Mends what an event that was lost, or a crash, left waiting."
        events.Rule(self, "EveryMinute", schedule=every_minute, targets=[target], description=why)
