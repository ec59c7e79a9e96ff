"""Deploys a CDK cloud assembly: what `cdk bootstrap` and `cdk deploy` do, against an endpoint."""

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError, WaiterError

from autocoder.errors import Mendable

ACCOUNT = "123456789012"
REGION = "us-east-1"
BOOTSTRAP_VERSION = "30"
EPOCH = (1980, 1, 1, 0, 0, 0)


class DeployError(Mendable):
    """The template could not be deployed; names the resource and the reason."""


def deploy(endpoint: str, assembly: Path, log: Callable[[str], object]) -> dict[str, str]:
    """Publish the assets, create the stacks with the synthesized templates, return the outputs."""
    session = boto3.session.Session("local", "local", region_name=REGION)
    manifest = json.loads((assembly / "manifest.json").read_text())
    artifacts: dict[str, Any] = manifest["artifacts"]
    for artifact in artifacts.values():
        if artifact["type"] == "cdk:asset-manifest":
            _bootstrap(session, endpoint, artifact["properties"])
            count = _publish(session, endpoint, assembly, artifact["properties"]["file"])
            log(f"published {count} assets")
    outputs: dict[str, str] = {}
    for name, artifact in artifacts.items():
        if artifact["type"] == "aws:cloudformation:stack":
            stack = artifact["properties"].get("stackName", name)
            template = assembly / artifact["properties"]["templateFile"]
            outputs |= _create_stack(session, endpoint, stack, template, log)
    return outputs


def _client(session: Any, endpoint: str, service: str) -> Any:
    # One attempt: a local failure is a defect to show, not to retry.
    settings = Config(retries={"total_max_attempts": 1}, read_timeout=120)
    return session.client(service, endpoint_url=endpoint, config=settings)


def _bootstrap(session: Any, endpoint: str, properties: dict[str, Any]) -> None:
    """The parameter that a template reads to see that the account is bootstrapped."""
    if parameter := properties.get("bootstrapStackVersionSsmParameter"):
        _client(session, endpoint, "ssm").put_parameter(
            Name=parameter, Value=BOOTSTRAP_VERSION, Type="String", Overwrite=True
        )


def _publish(session: Any, endpoint: str, assembly: Path, asset_manifest: str) -> int:
    s3 = _client(session, endpoint, "s3")
    files = json.loads((assembly / asset_manifest).read_text())["files"]
    buckets = set()
    for asset in files.values():
        content = package(assembly / asset["source"]["path"], asset["source"]["packaging"])
        for destination in asset["destinations"].values():
            bucket = _resolve(destination["bucketName"])
            if bucket not in buckets:
                s3.create_bucket(Bucket=bucket)  # no error if it is there: it is ours
                buckets.add(bucket)
            s3.put_object(Bucket=bucket, Key=_resolve(destination["objectKey"]), Body=content)
    return len(files)


def _resolve(text: str) -> str:
    values = {"AccountId": ACCOUNT, "Region": REGION, "Partition": "aws"}
    for name, value in values.items():
        text = text.replace(f"${{AWS::{name}}}", value)
    return text


def package(source: Path, packaging: str) -> bytes:
    """An asset as it is uploaded. A folder becomes the same zip for the same content."""
    if packaging != "zip" or source.is_file():
        return source.read_bytes()
    buffer = io.BytesIO()
    # Stored, not deflated: it only goes to this machine, and 50 MB of layers deflate in seconds.
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for file in sorted(path for path in source.rglob("*") if path.is_file()):
            entry = zipfile.ZipInfo(file.relative_to(source).as_posix(), EPOCH)
            entry.external_attr = (file.stat().st_mode & 0o777) << 16
            archive.writestr(entry, file.read_bytes())
    return buffer.getvalue()


def _create_stack(
    session: Any, endpoint: str, name: str, template: Path, log: Callable[[str], object]
) -> dict[str, str]:
    cloudformation = _client(session, endpoint, "cloudformation")
    try:
        cloudformation.create_stack(
            StackName=name,
            TemplateBody=template.read_text(),
            Capabilities=["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM"],
        )
        cloudformation.get_waiter("stack_create_complete").wait(
            StackName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 60}
        )
    except (ClientError, WaiterError) as error:
        raise DeployError(f"stack {name} could not be created: {error}") from error
    stack = cloudformation.describe_stacks(StackName=name)["Stacks"][0]
    log(f"created stack {name}")
    return {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", [])}
