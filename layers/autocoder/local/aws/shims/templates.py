"""CloudFormation: types that moto lacks, and errors that name their resource."""

import logging
from typing import Any

log = logging.getLogger(__name__)


def accept_every_resource_type() -> None:
    """moto skips types that it does not know, so that what refers to them breaks."""
    from moto.cloudformation import parsing

    from autocoder.local.aws.cloudformation import Inert

    def resource_class_from_type(resource_type: str) -> Any:
        # A custom resource's provider is CDK's own function, often not written in Python.
        return parsing.get_model_map().get(resource_type, Inert)

    parsing.resource_class_from_type = resource_class_from_type


def name_the_resource_that_failed() -> None:
    """moto raises whatever broke. CloudFormation says which resource it was, and why."""
    from moto.cloudformation import parsing
    from moto.cloudformation.exceptions import ValidationError

    create = parsing.parse_and_create_resource

    class ResourceFailedError(ValidationError):  # type: ignore[misc]
        """Already names its resource: what depends on it must not take the blame."""

    def parse_and_create_resource(
        logical_id: str, resource_json: Any, *args: Any, **kw: Any
    ) -> Any:
        try:
            return create(logical_id, resource_json, *args, **kw)
        except ResourceFailedError:
            raise
        except Exception as error:
            log.exception("%s could not be created", logical_id)
            reason = getattr(error, "message", None) or f"{type(error).__name__}: {error}"
            raise ResourceFailedError(
                message=f"{logical_id} ({resource_json['Type']}): {reason}"
            ) from error

    parsing.parse_and_create_resource = parse_and_create_resource
