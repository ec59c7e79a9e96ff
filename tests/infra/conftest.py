"""Fixtures of the template's tests: what was synthesized."""

import json
from typing import Any

import pytest

from autocoder.local.assembly import synthesize


@pytest.fixture(scope="session")
def resources() -> dict[str, Any]:
    """The template's resources."""
    (file,) = synthesize(lambda line: None).glob("*.template.json")
    found: dict[str, Any] = json.loads(file.read_text())["Resources"]
    return found


@pytest.fixture(scope="session")
def machine(resources: dict[str, Any]) -> dict[str, Any]:
    """The workflow's definition."""
    (found,) = of_type(resources, "AWS::StepFunctions::StateMachine")
    parts = found["DefinitionString"]["Fn::Join"][1]
    text = "".join(part if isinstance(part, str) else "x" for part in parts)
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def of_type(resources: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    """The properties of all resources of a type."""
    return [r["Properties"] for r in resources.values() if r["Type"] == kind]
