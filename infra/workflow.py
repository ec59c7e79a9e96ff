"""The workflow, on one screen: the product's table of contents. Each state is a file in functions/.

    PlanTask ─► CreateSandbox ─► RunClaudeCode ─► TestAndBuild ─► DecideNext ─┬─ fix ► RunClaudeCode
                      ▲                │ sandbox lost  │            ▲         ├─ verify
                      ├────────────────┴───────────────┘            │         │  ▼
                      │   (restored from the last checkpoint)       └──── VerifyClean
                      ├───────────────────────────────── recheck, fix_anew ◄──┤
                      │                                                       └─ finish, give up
                                                                                     ▼
    any error, with its code ─────────────────────► FinishTask ◄───────────── ExtractArtifacts

The state is {task_id, attempt} and what each step adds under its own name (autocoder.task.State).
"""

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks
from constructs import Construct

from infra.explained import explain
from infra.steps import FUNCTIONS, Steps

TASK_MAY_TAKE = Duration.hours(26)  # the longest timeout_minutes, and time to wind up

# Worth another try: our own word for it, and what Lambda says when it is not to blame. The steps
# are re-entrant, so one that died half-way is simply called again.
TRANSIENT = ["TransientError", "Lambda.TooManyRequestsException", "Lambda.ServiceException"]
TRANSIENT += ["Lambda.AWSLambdaException", "Lambda.SdkClientException"]
TRANSIENT += ["Lambda.ClientExecutionTimeoutException"]
DIED = ["Runtime.ExitError", "Sandbox.Timedout", "Lambda.Unknown", "States.Timeout"]


class Workflow(Construct):
    """A task's way from a specification to a tested project."""

    def __init__(self, scope: Construct, id: str, *, steps: Steps) -> None:
        """Read from top to bottom: the steps, then the arrows."""
        super().__init__(scope, id)
        self.steps = steps
        self.role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("states.amazonaws.com"))
        explain(self.role, {"IAM5[Resource::*]": "X-Ray and log delivery know no resources."})

        plan = self._step("PlanTask", "plan_task", adds="plan")
        create = self._step("CreateSandbox", "create_sandbox", adds="sandbox")
        code = self._step("RunClaudeCode", "run_claude_code", adds="run")
        check = self._step("TestAndBuild", "test_and_build", adds="checks")
        decide = self._step("DecideNext", "decide_next", adds="decision")
        verify = self._step("VerifyClean", "verify_clean", adds="clean")
        extract = self._step("ExtractArtifacts", "extract_artifacts", adds="result")
        finish = self._step("FinishTask", "finish_task", adds="finished")

        plan.next(create)
        create.next(code)
        code.next(self._followed("AgentDone", "run", again=code, ended=extract, done=check))
        check.next(self._followed("ChecksDone", "checks", again=check, ended=extract, done=decide))
        decided = sfn.Choice(self, "Decided")
        ways = {"fix": code, "fix_anew": create, "recheck": create, "verify": verify}
        for answer, way in ways.items():
            decided.when(sfn.Condition.string_equals("$.decision.next", answer), way)
        decide.next(decided.otherwise(extract))
        verify.next(self._followed("CleanDone", "clean", again=verify, ended=extract, done=decide))
        extract.next(finish)

        for step in (code, check):
            step.add_catch(create, errors=["SandboxLost"], result_path=sfn.JsonPath.DISCARD)
        for step in (plan, create, decide):
            step.add_catch(extract, errors=["TaskCancelled"], result_path="$.cancel")
        for step in (plan, create, code, check, decide, verify, extract):
            step.add_catch(finish, errors=["States.ALL"], result_path="$.error")

        self.machine = sfn.StateMachine(
            self,
            "Machine",
            state_machine_type=sfn.StateMachineType.STANDARD,
            definition_body=sfn.DefinitionBody.from_chainable(plan),
            timeout=TASK_MAY_TAKE,
            comment="A task's way from a specification to a tested project.",
            role=self.role,
            tracing_enabled=True,
            logs=self._logs(),
        )

    def _step(self, id: str, function: str, *, adds: str) -> tasks.LambdaInvoke:
        """A function of the same name; its small result joins the state."""
        timeout_s = FUNCTIONS[function].timeout_s
        step = tasks.LambdaInvoke(
            self,
            id,
            lambda_function=self.steps.version(function, caller=self.role),
            payload_response_only=True,
            result_path=f"$.{adds}",
            retry_on_service_exceptions=False,
            task_timeout=sfn.Timeout.duration(Duration.seconds(timeout_s + 30)),
        )
        step.add_retry(
            errors=TRANSIENT,
            interval=Duration.seconds(1),
            backoff_rate=2,
            max_attempts=60,  # about ten minutes: an outage must not cost a task its hours
            max_delay=Duration.seconds(20),  # a cancel is seen when the step is tried again
            jitter_strategy=sfn.JitterType.FULL,
        )
        jitter = sfn.JitterType.FULL
        step.add_retry(
            errors=DIED, interval=Duration.seconds(1), max_attempts=2, jitter_strategy=jitter
        )
        return step

    def _logs(self) -> sfn.LogOptions:
        """Every state that is entered and left, without what it was given."""
        kept = self.steps.storage.log_retention
        group = logs.LogGroup(self, "Logs", retention=kept, removal_policy=RemovalPolicy.DESTROY)
        everything = sfn.LogLevel.ALL
        return sfn.LogOptions(destination=group, level=everything, include_execution_data=False)

    def _followed(
        self,
        id: str,
        part: str,
        *,
        again: sfn.IChainable,
        ended: sfn.IChainable,
        done: sfn.IChainable,
    ) -> sfn.Choice:
        """A step that follows a job hands over before its time is up, and is called again.

        `ended` is where a task goes that is cancelled or can't go on.
        """
        status = f"$.{part}.status"
        return (
            sfn.Choice(self, id)
            .when(sfn.Condition.string_equals(status, "running"), again)
            .when(sfn.Condition.string_equals(status, "done"), done)
            .otherwise(ended)
        )
