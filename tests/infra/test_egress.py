"""What the synthesized template says about sandboxes' ways out."""

import asyncio
import json
from typing import Any

import pytest
from pydantic import ValidationError

from autocoder.local.assembly import ROOT, synthesize
from autocoder.local.toolchain import ensure_toolchain
from autocoder.registries import Registries, find_registries
from autocoder.sandbox.egress import CA_VARIABLES, Egress
from autocoder.settings import Settings as FunctionSettings
from infra.egress import egress_of, reachable, tool_env, warnings
from infra.settings import Settings


@pytest.fixture(scope="module")
def chosen() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "cdk.json").read_text())["context"]["autocoder"]
    return found


def test_functions_that_use_sandboxes_are_told_what_those_may_reach() -> None:
    (file,) = synthesize(lambda line: None).glob("*.template.json")
    resources = json.loads(file.read_text())["Resources"]
    registries = asyncio.run(find_registries(ensure_toolchain(lambda line: None)))
    seen = 0
    for resource in resources.values():
        variables = resource.get("Properties", {}).get("Environment", {}).get("Variables", {})
        if "EGRESS" in variables:
            told = FunctionSettings.model_validate(
                {name.lower(): value for name, value in variables.items() if name == "EGRESS"}
                | dict.fromkeys(("stack_name", "bucket_name", "tasks_table", "events_table"), "x")
                | {"retention_days": 1}
            )
            assert told.egress.injected_secret
            assert not told.egress.key_in_sandbox
            assert told.egress.env.items() >= CA_VARIABLES.items()
            assert len(told.egress.package_hosts) == len(
                {url.split("/")[2] for url in registries.urls if reachable(url)}
            )
            seen += 1
    assert seen >= 3


def test_no_registry_is_named_in_the_repository(chosen: dict[str, Any]) -> None:
    assert chosen["extra_hosts"] == []
    assert Egress().package_hosts == ()


def test_cdk_json_may_add_hosts_but_no_pattern_port_or_address(chosen: dict[str, Any]) -> None:
    settings = Settings.model_validate({**chosen, "extra_hosts": ["packages.example.com"]})
    assert "packages.example.com" in egress_of(settings).package_hosts
    for wrong in ("*.example.com", "https://example.com", "example.com:8080", "*", "localhost"):
        with pytest.raises(ValidationError, match="extra_hosts"):
            Settings.model_validate({**chosen, "extra_hosts": [wrong]})


def test_registries_that_the_cloud_can_not_reach_are_left_out() -> None:
    env = {
        "PIP_INDEX_URL": "http://localhost:3141/simple",
        "PIP_EXTRA_INDEX_URL": "https://a.example.com/simple https://b.example.com:8443/simple",
        "npm_config_registry": "https://npm.example.com/",
        "PIP_CERT": "/home/me/ca.pem",
    }
    assert tool_env(Registries(env=env)) == {
        "PIP_EXTRA_INDEX_URL": "https://a.example.com/simple",
        "npm_config_registry": "https://npm.example.com/",
    }


def test_a_deployment_without_a_way_for_the_key_says_so(chosen: dict[str, Any]) -> None:
    settings = Settings.model_validate({**chosen, "injected_secret_name": ""})
    (said,) = warnings(settings, egress_of(settings))
    assert "autocoder setup" in said


def test_a_key_inside_sandboxes_is_a_choice_that_is_warned_of(chosen: dict[str, Any]) -> None:
    settings = Settings.model_validate({**chosen, "key_in_sandbox": True})
    egress = egress_of(settings)
    assert egress.injected_secret == ""
    (said,) = warnings(settings, egress)
    assert "read it" in said
