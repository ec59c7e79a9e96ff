"""Lambda: functions in real runtime processes, queues polled into them."""

import json
from typing import Any

from autocoder.local.aws.shims.hooks import Hooks


def run_functions_in_processes(hooks: Hooks) -> None:
    """moto runs functions in Docker containers. Here they run in runtime processes."""
    from moto.awslambda.models import LambdaFunction

    def invoke(self: Any, body: Any, request_headers: Any, response_headers: Any) -> bytes:
        payload = (body.encode() if isinstance(body, str) else body) or b"{}"
        headers = {name.lower(): value for name, value in dict(request_headers).items()}
        response_headers["x-amz-executed-version"] = str(self.version)
        kind = headers.get("x-amz-invocation-type", "RequestResponse")
        if kind != "RequestResponse":  # the other two are Event and DryRun
            if kind == "Event":
                hooks.invoke_later(self, payload)
            return b""
        outcome = hooks.invoke(self, payload)
        if outcome.failed:
            response_headers["x-amz-function-error"] = "Unhandled"
        return outcome.payload

    LambdaFunction.invoke = invoke


def keep_what_cloudformation_says_of_functions() -> None:
    """moto drops layers, logging, and the architectures of layers. AWS uses them."""
    from moto.awslambda.models import LambdaFunction, LayerVersion

    create_function = LambdaFunction.create_from_cloudformation_json.__func__
    create_layer = LayerVersion.create_from_cloudformation_json.__func__

    def function(cls: Any, name: str, template: Any, *args: Any, **kwargs: Any) -> Any:
        created = create_function(cls, name, template, *args, **kwargs)
        properties = template["Properties"]
        created.layers = created._get_layers_data(properties.get("Layers", []))
        created.architectures = properties.get("Architectures", ["x86_64"])
        created.logging_config = properties.get("LoggingConfig", {})
        return created

    def layer(cls: Any, name: str, template: Any, *args: Any, **kwargs: Any) -> Any:
        created = create_layer(cls, name, template, *args, **kwargs)
        created.compatible_architectures = template["Properties"].get("CompatibleArchitectures", [])
        return created

    LambdaFunction.create_from_cloudformation_json = classmethod(function)
    LayerVersion.create_from_cloudformation_json = classmethod(layer)


def name_layers_and_versions_by_arn() -> None:
    """moto gives a layer version and a function version no physical id; `Ref` is their ARN."""
    from moto.awslambda.models import LambdaVersion, LayerVersion, lambda_backends

    LayerVersion.physical_resource_id = property(lambda self: self.arn)
    create_version = LambdaVersion.create_from_cloudformation_json.__func__

    def version(
        cls: Any, name: str, template: Any, account: str, region: str, /, **kwargs: Any
    ) -> Any:
        created = create_version(cls, name, template, account, region, **kwargs)
        function = lambda_backends[account][region].get_function(
            template["Properties"]["FunctionName"], str(created.version)
        )
        created.physical_resource_id = function.function_arn
        return created

    LambdaVersion.create_from_cloudformation_json = classmethod(version)
    LambdaVersion.has_cfn_attr = classmethod(lambda cls, attr: attr == "Version")
    LambdaVersion.get_cfn_attribute = lambda self, _: str(self.version)


def poll_event_sources(hooks: Hooks) -> None:
    """moto invokes the function inside SendMessage, a message at a time. AWS polls the queue."""
    from moto.awslambda.models import LambdaBackend
    from moto.sqs.models import sqs_backends

    create = LambdaBackend.create_event_source_mapping

    def create_event_source_mapping(self: Any, spec: dict[str, Any]) -> Any:
        mapping = create(self, spec)
        for queue in sqs_backends[self.account_id][self.region_name].queues.values():
            if queue.queue_arn == mapping.event_source_arn:
                queue.lambda_event_source_mappings.clear()
                hooks.event_source_added(mapping)
        return mapping

    LambdaBackend.create_event_source_mapping = create_event_source_mapping


def tell_the_accounts_limits() -> None:
    """moto does not know GetAccountSettings. AWS lets most accounts run 1,000 functions at once."""
    from moto.awslambda.responses import LambdaResponse
    from moto.awslambda.urls import url_paths

    def get_account_settings(self: Any) -> str:
        limit = {"ConcurrentExecutions": 1000, "UnreservedConcurrentExecutions": 1000}
        return json.dumps({"AccountLimit": limit})

    LambdaResponse.get_account_settings = get_account_settings
    url_paths["{0}/(?P<api_version>[^/]+)/account-settings/?$"] = LambdaResponse.dispatch
