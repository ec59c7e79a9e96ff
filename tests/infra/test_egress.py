"""What the synthesized template says about sandboxes' ways out."""

import asyncio
import json
from typing import Any

import pytest

from autocoder.local.assembly import ROOT, synthesize
from autocoder.local.toolchain import ensure_toolchain
from autocoder.registries import Registries, find_registries
from autocoder.sandbox.egress import CA_VARIABLES, Egress
from autocoder.settings import Settings as FunctionSettings
from infra.egress import egress_of, left_out, tool_env, warnings
from infra.settings import Settings

BOTH = Registries(
    urls=["https://pip.example.com/simple", "https://npm.example.com/"],
    env={
        "PIP_INDEX_URL": "https://pip.example.com/simple",
        "npm_config_registry": "https://npm.example.com/",
    },
)


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
                {url.split("/")[2] for url in registries.urls if not left_out(url)}
            )
            seen += 1
    assert seen >= 3


def test_no_registry_is_named_in_the_repository(chosen: dict[str, Any]) -> None:
    assert chosen["extra_hosts"] == []
    assert Egress().package_hosts == ()


def test_cdk_json_may_add_hosts(chosen: dict[str, Any]) -> None:
    settings = Settings.model_validate({**chosen, "extra_hosts": ["packages.example.com"]})
    assert "packages.example.com" in egress_of(settings, BOTH).package_hosts


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


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://localhost:3141/simple", "on this machine"),
        ("https://127.0.0.1/simple", "on this machine"),
        ("file:///srv/simple", "a folder"),
        ("/srv/wheels", "a folder"),
        ("https://b.example.com:8443/simple", "80 and 443"),
        ("ftp://b.example.com/simple", "80 and 443"),
        ("https://10.1.2.3/simple", "by their names"),
        ("http://nexus/simple", "without a dot"),
    ],
)
def test_every_registry_that_is_left_out_is_named_though_another_remains(
    chosen: dict[str, Any], url: str, why: str
) -> None:
    settings = Settings.model_validate(chosen)
    registries = Registries(urls=[*BOTH.urls, url], env=BOTH.env)
    (said,) = warnings(settings, registries)
    assert url in said and why in said
    assert egress_of(settings, registries) == egress_of(settings, BOTH)


@pytest.mark.parametrize("tool", ["pip", "npm"])
def test_a_tool_without_any_registry_is_named(chosen: dict[str, Any], tool: str) -> None:
    env = {name: url for name, url in BOTH.env.items() if tool not in name.lower()}
    (said,) = warnings(Settings.model_validate(chosen), Registries(urls=[*env.values()], env=env))
    assert f"This machine's {tool} has no registry" in said


def test_a_deployment_without_a_way_for_the_key_says_so(chosen: dict[str, Any]) -> None:
    settings = Settings.model_validate({**chosen, "injected_secret_name": ""})
    (said,) = warnings(settings, BOTH)
    assert "autocoder setup" in said


def test_a_key_inside_sandboxes_is_a_choice_that_is_warned_of(chosen: dict[str, Any]) -> None:
    settings = Settings.model_validate({**chosen, "key_in_sandbox": True})
    assert egress_of(settings, BOTH).injected_secret == ""
    (said,) = warnings(settings, BOTH)
    assert "read it" in said
