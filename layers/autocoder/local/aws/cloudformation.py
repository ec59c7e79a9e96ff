"""CloudFormation resource types that moto lacks: made here, or noted as having no part locally."""

import json
import logging
import secrets
import string
from typing import Any

from moto.awslambda.models import lambda_backends
from moto.core.common_models import CloudFormationModel
from moto.secretsmanager.models import secretsmanager_backends

log = logging.getLogger(__name__)


class Secret(CloudFormationModel):  # type: ignore[misc]
    """AWS::SecretsManager::Secret."""

    def __init__(self, arn: str) -> None:
        self.physical_resource_id = arn

    @staticmethod
    def cloudformation_name_type() -> str:
        return "Name"

    @staticmethod
    def cloudformation_type() -> str:
        return "AWS::SecretsManager::Secret"

    @classmethod
    def create_from_cloudformation_json(
        cls,
        resource_name: str,
        cloudformation_json: dict[str, Any],
        account_id: str,
        region_name: str,
        **_: Any,
    ) -> "Secret":
        properties = cloudformation_json["Properties"]
        value = properties.get("SecretString")
        if "GenerateSecretString" in properties:
            value = _generated(properties["GenerateSecretString"])
        created = secretsmanager_backends[account_id][region_name].create_secret(
            name=resource_name,
            secret_string=value,
            secret_binary=None,
            description=properties.get("Description"),
            tags=properties.get("Tags", []),
            kms_key_id=properties.get("KmsKeyId"),
            client_request_token=None,
            replica_regions=[],
            force_overwrite=False,
        )
        log.info("%s: the local cloud made this secret itself", resource_name)
        return cls(json.loads(created)["ARN"])

    def get_cfn_attribute(self, attribute_name: str) -> str:
        return self.physical_resource_id


def _generated(settings: dict[str, Any]) -> str:
    alphabet = string.ascii_letters + string.digits
    password = "".join(
        secrets.choice(alphabet) for _ in range(int(settings.get("PasswordLength", 32)))
    )
    if "SecretStringTemplate" not in settings:
        return password
    template = json.loads(settings["SecretStringTemplate"])
    return json.dumps(template | {settings["GenerateStringKey"]: password})


class EventInvokeConfig(CloudFormationModel):  # type: ignore[misc]
    """AWS::Lambda::EventInvokeConfig: how asynchronous invocations are retried."""

    def __init__(self, name: str) -> None:
        self.physical_resource_id = name

    @staticmethod
    def cloudformation_name_type() -> str:
        return ""

    @staticmethod
    def cloudformation_type() -> str:
        return "AWS::Lambda::EventInvokeConfig"

    @classmethod
    def create_from_cloudformation_json(
        cls,
        resource_name: str,
        cloudformation_json: dict[str, Any],
        account_id: str,
        region_name: str,
        **_: Any,
    ) -> "EventInvokeConfig":
        properties = cloudformation_json["Properties"]
        qualifier = properties.get("Qualifier")
        deployed = lambda_backends[account_id][region_name].get_function(
            properties["FunctionName"], None if qualifier == "$LATEST" else qualifier
        )
        deployed.async_settings = properties  # read by `invocations`
        return cls(resource_name)


class Inert(CloudFormationModel):  # type: ignore[misc]
    """A resource that does nothing locally: an alarm, a dashboard, a resource policy, …"""

    def __init__(self, name: str, account: str, region: str) -> None:
        self.physical_resource_id = name
        self._arn = f"arn:aws:inert:{region}:{account}:{name}"

    @staticmethod
    def cloudformation_name_type() -> str:
        return ""

    @staticmethod
    def cloudformation_type() -> str:
        return "Autocoder::Local::Inert"

    @classmethod
    def create_from_cloudformation_json(
        cls,
        resource_name: str,
        cloudformation_json: dict[str, Any],
        account_id: str,
        region_name: str,
        **kwargs: Any,
    ) -> "Inert":
        log.info(
            "%s (%s) has no part in the local cloud", kwargs["LogicalId"], kwargs["ResourceType"]
        )
        return cls(resource_name, account_id, region_name)

    def get_cfn_attribute(self, attribute_name: str) -> str:
        return self._arn if attribute_name.endswith("Arn") else self.physical_resource_id
