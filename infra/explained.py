"""Findings of cdk-nag's AwsSolutions pack that are as they should be, each with its reason.

A finding without one fails the synth. The reasons stand next to the resource they are about.
"""

from typing import cast

from aws_cdk import Acknowledgment, CfnElement, Stack, Validations
from constructs import IConstruct


def explain(construct: IConstruct, reasons: dict[str, str]) -> None:
    """Accept findings on this construct and what is in it: rule → reason."""
    for rule, reason in reasons.items():
        finding = Acknowledgment(id=f"AwsSolutions::AwsSolutions-{rule}", reason=reason)
        Validations.of(construct).acknowledge(finding)


def shown(resource: IConstruct, attribute: str = "Arn") -> str:
    """How cdk-nag writes a resource's attribute in a finding."""
    element = cast(CfnElement, resource.node.default_child)
    return f"<{Stack.of(resource).get_logical_id(element)}.{attribute}>"
