"""What ends the things that the workflow could not: a rule for executions, a schedule for the rest.

An execution that is aborted or times out runs no Catch, so FinishTask never sees it.
"""

from typing import cast

from aws_cdk import Aws, Duration
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from infra.explained import explain, shown
from infra.steps import Steps

REAP_EVERY = Duration.minutes(10)
ENDED_BADLY = ["FAILED", "TIMED_OUT", "ABORTED"]


class Upkeep(Construct):
    """Ends stranded tasks, leaked sandboxes and slots that nobody needs."""

    def __init__(
        self, scope: Construct, id: str, *, steps: Steps, machine: sfn.StateMachine
    ) -> None:
        """Both act on what the record says, and change nothing about a task that has ended."""
        super().__init__(scope, id)
        pattern = events.EventPattern(
            source=["aws.states"],
            detail_type=["Step Functions Execution Status Change"],
            detail={"stateMachineArn": [machine.state_machine_arn], "status": ENDED_BADLY},
        )
        events.Rule(
            self,
            "OnExecutionEndedBadly",
            description="An execution ended without FinishTask: its task is ended.",
            event_pattern=pattern,
            targets=[targets.LambdaFunction(steps["end_stranded_task"])],
        )
        reaper = steps["reap_sandboxes"]
        reaper.add_environment("STATE_MACHINE_ARN", machine.state_machine_arn)
        self._let_see_executions(reaper, machine)
        events.Rule(
            self,
            "EveryTenMinutes",
            description="Ends sandboxes, slots and tasks that were left behind.",
            schedule=events.Schedule.rate(REAP_EVERY),
            targets=[targets.LambdaFunction(reaper)],
        )

    def _let_see_executions(self, reaper: lambda_.Function, machine: sfn.StateMachine) -> None:
        made = cast(sfn.CfnStateMachine, machine.node.default_child)
        executions = f"{Aws.REGION}:{Aws.ACCOUNT_ID}:execution:{made.attr_name}:*"
        permission = iam.PolicyStatement(
            actions=["states:DescribeExecution"],
            resources=[f"arn:{Aws.PARTITION}:states:{executions}"],
        )
        reaper.add_to_role_policy(permission)
        where = "arn:<AWS::Partition>:states:<AWS::Region>:<AWS::AccountId>"
        finding = f"IAM5[Resource::{where}:execution:{shown(machine, 'Name')}:*]"
        explain(cast(iam.Role, reaper.role), {finding: "Every attempt of a task is an execution."})
