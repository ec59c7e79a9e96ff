"""The stack composes; the constructs build."""

from aws_cdk import CfnOutput, Stack
from constructs import Construct

from infra.intake import Intake
from infra.settings import Settings
from infra.steps import Steps
from infra.storage import Storage
from infra.workflow import Workflow


class AutocoderStack(Stack):
    """The whole service, in the order in which a task goes through it."""

    def __init__(self, scope: Construct, id: str, *, settings: Settings) -> None:
        """Its outputs are what senders and operators need to know."""
        super().__init__(scope, id, description="Autocoder: specifications in, tested projects out")
        storage = Storage(self, "Storage", retention_days=settings.retention_days)
        steps = Steps(self, "Steps", settings=settings, storage=storage)
        workflow = Workflow(self, "Workflow", steps=steps)
        intake = Intake(
            self,
            "Intake",
            steps=steps,
            machine=workflow.machine,
            max_running=settings.max_running,
        )
        outputs = {
            "TaskQueueUrl": intake.queue.queue_url,
            "DeadLettersUrl": intake.dead_letters.queue_url,
            "TasksTable": storage.tasks.table_name,
            "TaskEventsTable": storage.events.table_name,
            "BucketName": storage.bucket.bucket_name,
            "E2bSecretName": settings.e2b_secret_name,
            "AnthropicSecretName": settings.anthropic_secret_name,
            "StateMachineArn": workflow.machine.state_machine_arn,
        }
        for name, value in outputs.items():
            CfnOutput(self, name, value=value)
