"""The stack composes; the constructs build."""

from aws_cdk import CfnOutput, Stack
from constructs import Construct

from infra.intake import Intake
from infra.settings import Settings
from infra.steps import Steps
from infra.storage import Storage
from infra.upkeep import Upkeep
from infra.workflow import Workflow


class AutocoderStack(Stack):
    """The whole service, in the order in which a task goes through it."""

    def __init__(self, scope: Construct, id: str, *, settings: Settings) -> None:
        """Its outputs are what senders and operators need to know."""
        super().__init__(scope, id, description="Autocoder: specifications in, tested projects out")
        storage = Storage(self, "Storage", retention_days=settings.retention_days)
        steps = Steps(self, "Steps", settings=settings, storage=storage)
        self.egress = steps.egress
        workflow = Workflow(self, "Workflow", steps=steps)
        intake = Intake(
            self,
            "Intake",
            steps=steps,
            machine=workflow.machine,
            max_running=settings.max_running,
        )
        Upkeep(self, "Upkeep", steps=steps, machine=workflow.machine)
        outputs = {
            "TaskQueueUrl": (intake.queue.queue_url, "Send task messages here."),
            "TaskQueueArn": (
                intake.queue.queue_arn,
                "For a sender's role: sqs:SendMessage.",
            ),
            "DeadLettersUrl": (intake.dead_letters.queue_url, "Messages that were not accepted."),
            "TasksTable": (storage.tasks.table_name, "Where every task is, by task_id."),
            "TaskEventsTable": (storage.events.table_name, "The live feed of every task."),
            "BucketName": (storage.bucket.bucket_name, "Results, under tasks/<task_id>/."),
            "EvidenceKeyArn": (
                storage.evidence_key.key_arn,
                "Signs results: its public key is for `autocoder verify --key`.",
            ),
            "StateMachineArn": (workflow.machine.state_machine_arn, "An execution an attempt."),
            "E2bSecretName": (settings.e2b_secret_name, "Where the E2B API key must lie."),
            "AnthropicSecretName": (
                settings.anthropic_secret_name,
                "Where the planner's API key must lie.",
            ),
            "SandboxOwner": (steps.sandbox_owner, "What this stack's sandboxes say of themselves."),
            "E2bTemplate": (steps.template, "What sandboxes are made from; it must be in E2B."),
            "MaxRunning": (str(settings.max_running), "So many tasks run at once."),
            "Stage": (settings.stage, "This stack's stage; events carry the stack's name."),
        }
        for name, (value, description) in outputs.items():
            CfnOutput(self, name, value=value, description=description)
