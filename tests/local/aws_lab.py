"""An embedded AWS for tests, and the few lines of template that they deploy into it."""

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any, TypeVar

import boto3
from botocore.config import Config

from autocoder.local.aws.deploy import deploy

T = TypeVar("T")
ASSET_BUCKET = "cdk-hnb659fds-assets-${AWS::AccountId}-${AWS::Region}"
TEST_CONFIG = Config(retries={"total_max_attempts": 1}, read_timeout=60, max_pool_connections=64)


class Lab:
    """One running server, its client side, and its state folder."""

    def __init__(self, folder: Path, *, env: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.function_env = folder / "function-env.json"
        self.function_env.write_text("{}")
        command = [sys.executable, "-m", "autocoder.local.aws", "--state-dir", str(self.state)]
        self.process = subprocess.Popen(
            [*command, "--function-env", str(self.function_env)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **(env or {})},
        )
        assert self.process.stdout is not None
        self.endpoint: str = json.loads(self.process.stdout.readline())["endpoint"]
        self.stacks = 0

    def client(self, service: str) -> Any:
        session = boto3.session.Session("local", "local", region_name="us-east-1")
        return session.client(service, endpoint_url=self.endpoint, config=TEST_CONFIG)  # type: ignore[call-overload]

    def deploy(self, template: "Template") -> dict[str, str]:
        self.stacks += 1
        assembly = template.write(self.folder / f"cdk.out-{self.stacks}", f"Stack{self.stacks}")
        return deploy(self.endpoint, assembly, lambda line: None)

    def log(self, name: str) -> str:
        return (self.state / "logs" / f"{name}.log").read_text()

    def invoke(self, function: str, event: Any = None) -> tuple[Any, bool]:
        """The handler's answer, and whether Lambda calls it an error."""
        answer = self.client("lambda").invoke(
            FunctionName=function, Payload=json.dumps(event or {}).encode()
        )
        return json.loads(answer["Payload"].read()), "FunctionError" in answer

    def close(self) -> int:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        return self.process.wait(30)


class Template:
    """A hand-written CloudFormation template with its assets, in CDK's layout."""

    def __init__(self) -> None:
        self.resources: dict[str, Any] = {"Role": _role()}
        self.outputs: dict[str, Any] = {}
        self._assets: dict[str, dict[str, str]] = {}

    def add(self, name: str, kind: str, **properties: Any) -> dict[str, str]:
        depends = properties.pop("DependsOn", None)
        self.resources[name] = {"Type": kind, "Properties": properties}
        if depends:
            self.resources[name]["DependsOn"] = depends
        self.outputs[name] = {"Value": {"Ref": name}}
        return {"Ref": name}

    def function(self, name: str, code: str, **properties: Any) -> dict[str, str]:
        defaults = {
            "Handler": "app.handler",
            "Runtime": "python3.13",
            "Role": {"Fn::GetAtt": ["Role", "Arn"]},
            "Timeout": 20,
            "MemorySize": 256,
        }
        source = self.asset({"app.py": dedent(code)})
        return self.add(name, "AWS::Lambda::Function", **{**defaults, "Code": source, **properties})

    def layer(self, name: str, files: dict[str, str], **properties: Any) -> dict[str, str]:
        source = self.asset({f"python/{path}": text for path, text in files.items()})
        return self.add(name, "AWS::Lambda::LayerVersion", Content=source, **properties)

    def machine(self, name: str, definition: dict[str, Any]) -> dict[str, str]:
        """A state machine; `${Name}` in it is the ARN of a function or version."""
        text = {"Fn::Sub": json.dumps(definition)}
        role = {"Fn::GetAtt": ["Role", "Arn"]}
        return self.add(
            name, "AWS::StepFunctions::StateMachine", DefinitionString=text, RoleArn=role
        )

    def asset(self, files: dict[str, str]) -> dict[str, Any]:
        digest = hashlib.sha256(json.dumps(files).encode()).hexdigest()
        self._assets[digest] = files
        return {"S3Bucket": {"Fn::Sub": ASSET_BUCKET}, "S3Key": f"{digest}.zip"}

    def write(self, folder: Path, stack: str) -> Path:
        folder.mkdir(parents=True)
        for digest, files in self._assets.items():
            for name, text in files.items():
                file = folder / f"asset.{digest}" / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
        body = {"Resources": self.resources, "Outputs": self.outputs, "Parameters": _bootstrap()}
        _write(folder / f"{stack}.template.json", body)
        _write(folder / f"{stack}.assets.json", {"files": self._files()})
        _write(folder / "manifest.json", _manifest(stack))
        return folder

    def _files(self) -> dict[str, Any]:
        return {
            digest: {
                "source": {"path": f"asset.{digest}", "packaging": "zip"},
                "destinations": {
                    "current": {"bucketName": ASSET_BUCKET, "objectKey": f"{digest}.zip"}
                },
            }
            for digest in self._assets
        }


def _write(file: Path, content: Any) -> None:
    file.write_text(json.dumps(content))


def _role() -> dict[str, Any]:
    return {"Type": "AWS::IAM::Role", "Properties": {"AssumeRolePolicyDocument": {}}}


def _bootstrap() -> dict[str, Any]:
    parameter = {"Type": "AWS::SSM::Parameter::Value<String>"}
    return {"BootstrapVersion": {**parameter, "Default": "/cdk-bootstrap/hnb659fds/version"}}


def _manifest(stack: str) -> dict[str, Any]:
    return {
        "artifacts": {
            f"{stack}.assets": {
                "type": "cdk:asset-manifest",
                "properties": {
                    "file": f"{stack}.assets.json",
                    "bootstrapStackVersionSsmParameter": "/cdk-bootstrap/hnb659fds/version",
                },
            },
            stack: {
                "type": "aws:cloudformation:stack",
                "properties": {"templateFile": f"{stack}.template.json", "stackName": stack},
            },
        }
    }


def eventually(look: Callable[[], T | None], seconds: float = 60) -> T:
    """What `look` gives as soon as it gives something true."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        if found := look():
            return found
        time.sleep(0.05)
    raise AssertionError(f"nothing after {seconds} s")
