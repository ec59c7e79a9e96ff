"""Where a command goes, and what is said when it gets nowhere: a sentence each."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from botocore.exceptions import EndpointConnectionError

from autocoder.cli.refusals import refusal
from autocoder.local.cloud import LocalCloud
from autocoder.local.running import Running, owner
from infra.settings import Settings
from tests.cli.conftest import Caller

ACCOUNT = {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"}
STACK = Settings.load().stack_name


@contextmanager
def answering(status: int, body: str) -> Iterator[str]:
    """An AWS on loopback that answers every request alike."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def refusing(code: str, message: str) -> str:
    """An error as CloudFormation says one."""
    said = f"<Type>Sender</Type><Code>{code}</Code><Message>{message}</Message>"
    return f"<ErrorResponse><Error>{said}</Error><RequestId>1</RequestId></ErrorResponse>"


def test_the_running_local_cloud_is_taken_and_aws_if_it_is_named(
    caller: Caller, cloud: LocalCloud
) -> None:
    assert "in the local cloud" in caller.refused("status", "no-such-task")
    assert "in the local cloud" in caller.refused("status", "no-such-task", "--local")
    caller.environment |= {**ACCOUNT, "AWS_ENDPOINT_URL": cloud.endpoint}
    for named in (["--region", "us-east-1"], ["--stack", STACK, "--region", "us-east-1"]):
        said = caller.refused("status", "no-such-task", *named)
        assert said.startswith(f"there is no task no-such-task in the stack {STACK} in us-east-1: ")
        assert "`autocoder list`" in said


def test_both_say_the_same(caller: Caller, cloud: LocalCloud) -> None:
    caller.environment |= {**ACCOUNT, "AWS_ENDPOINT_URL": cloud.endpoint}
    cloud.send('{"task_id": "said-by-both", "colour": "blue"}')
    while "said-by-both" not in (here := caller.call("list", "--all", "--json").stdout):
        pass
    there = caller.call("list", "--all", "--json", "--region", "us-east-1")
    assert json.loads(there.stdout) == json.loads(here)
    there = caller.call("status", "said-by-both", "--json", "--region", "us-east-1")
    record = json.loads(caller.call("status", "said-by-both", "--json").stdout)
    assert record == json.loads(there.stdout)
    assert (record["status"], record["failure"]["code"]) == ("REJECTED", "message_invalid")


def test_both_at_once_is_a_contradiction(caller: Caller) -> None:
    assert "choose" in caller.refused("list", "--local", "--region", "eu-west-1")


def test_a_profile_that_does_not_exist_does_not_matter_locally(caller: Caller) -> None:
    caller.environment["AWS_PROFILE"] = "no-such-profile"
    assert caller.call("list").returncode == 0


def test_no_local_cloud(stranger: Caller) -> None:
    said = stranger.refused("list", "--local")
    assert said == "no local cloud is running: `autocoder local up` starts one."


def test_a_local_cloud_that_is_only_starting(
    stranger: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", stranger.environment["XDG_STATE_HOME"])
    with owner():
        assert "is only starting (process " in stranger.refused("list")


def test_a_local_cloud_that_does_not_answer(
    stranger: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", stranger.environment["XDG_STATE_HOME"])
    outputs = {"TasksTable": "t"}
    with owner() as write:
        write(Running(endpoint="http://127.0.0.1:1", outputs=outputs))
        said = stranger.refused("list")
    assert said.startswith("the local cloud at http://127.0.0.1:1 does not answer: ")
    assert "`autocoder local status`" in said


def test_no_region(stranger: Caller) -> None:
    said = stranger.refused("list")
    assert said.startswith("no AWS region is chosen: set AWS_REGION, or name one with --region.")


def test_no_credentials(stranger: Caller) -> None:
    said = stranger.refused("list", "--region", "eu-west-1")
    assert said.startswith("there are no AWS credentials: log in as for the aws CLI")
    assert "`autocoder local up`" in said


def test_no_such_profile(stranger: Caller) -> None:
    said = stranger.refused("list", "--profile", "nobody", "--region", "eu-west-1")
    assert "(nobody)" in said
    assert "aws configure list-profiles" in said


def test_an_endpoint_that_can_not_be_reached(stranger: Caller) -> None:
    stranger.environment |= {**ACCOUNT, "AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
    said = stranger.refused("list", "--region", "eu-west-1")
    assert said.startswith("AWS can't be reached: ")
    assert "http://127.0.0.1:1" in said
    assert '". Check the network' in said


def test_a_region_that_does_not_exist_is_told_apart_from_no_network() -> None:
    def said(region: str) -> str | None:
        url = f"https://cloudformation.{region}.amazonaws.com/"
        return refusal(EndpointConnectionError(endpoint_url=url))

    assert str(said("eu-west-99")).startswith("there is no AWS region eu-west-99: name one")
    assert str(said("eu-west-1")).startswith("AWS can't be reached: ")
    assert str(said("us-gov-west-1")).startswith("AWS can't be reached: ")


@pytest.mark.parametrize(
    ("where", "named"),
    [
        (["--region", "eu-west-1"], f"there is no stack {STACK} in eu-west-1: "),
        (["--region", "us-east-1", "--stack", "Other"], "there is no stack Other in us-east-1: "),
    ],
)
def test_a_wrong_region_or_stack(
    stranger: Caller, cloud: LocalCloud, where: list[str], named: str
) -> None:
    stranger.environment |= {**ACCOUNT, "AWS_ENDPOINT_URL": cloud.endpoint}
    said = stranger.refused("list", *where)
    assert said.startswith(named)
    assert "--stack" in said
    assert "--region" in said


@pytest.mark.parametrize(
    ("code", "message", "says"),
    [
        ("ExpiredToken", "The token has expired", "the AWS credentials have expired: log in"),
        ("InvalidClientTokenId", "No such token", "AWS does not know these credentials"),
        (
            "AccessDenied",
            "User: arn:aws:iam::1:user/me is not authorized to perform: cloudformation:Describe",
            "AWS denies DescribeStacks to these credentials: User: arn:aws:iam::1:user/me is not "
            "authorized to perform: cloudformation:Describe. Ask whoever runs the account",
        ),
        ("Throttling", "Rate exceeded", "AWS refused DescribeStacks: Throttling: Rate exceeded."),
    ],
)
def test_what_aws_refuses(stranger: Caller, code: str, message: str, says: str) -> None:
    with answering(403, refusing(code, message)) as endpoint:
        stranger.environment |= {**ACCOUNT, "AWS_ENDPOINT_URL": endpoint}
        assert stranger.refused("list", "--region", "eu-west-1").startswith(says)


def test_a_stack_that_is_none_of_ours(stranger: Caller) -> None:
    member = "<member><StackName>x</StackName><StackStatus>CREATE_COMPLETE</StackStatus></member>"
    result = f"<DescribeStacksResult><Stacks>{member}</Stacks></DescribeStacksResult>"
    with answering(200, f"<DescribeStacksResponse>{result}</DescribeStacksResponse>") as endpoint:
        stranger.environment |= {**ACCOUNT, "AWS_ENDPOINT_URL": endpoint}
        said = stranger.refused("list", "--stack", "x", "--region", "eu-west-1")
    assert said.startswith("the stack x in eu-west-1 is CREATE_COMPLETE and has no output")


def test_a_fault_of_ours_is_called_one_and_debug_shows_where(stranger: Caller) -> None:
    with answering(200, "<DescribeStacksResponse/>") as endpoint:  # which no AWS ever said
        stranger.environment |= {**ACCOUNT, "AWS_ENDPOINT_URL": endpoint}
        said = stranger.refused("list", "--region", "eu-west-1")
        shown = stranger.call("--debug", "list", "--region", "eu-west-1")
    fault = "this is a fault in autocoder: KeyError: 'DescribeStacksResult'; "
    assert said == f"{fault}`autocoder --debug …` shows where."
    assert shown.returncode == 2
    assert "Traceback" in shown.stderr
    assert shown.stderr.endswith(f"autocoder: {said}\n")


@pytest.mark.parametrize("wrong", ["#slots", "Upper", "a" * 65, "../x", "a\n"])
def test_what_can_be_no_task_is_not_looked_for(caller: Caller, wrong: str) -> None:
    assert "is no task's id" in caller.refused("status", wrong)
