"""Which commands check which project."""

import json

import pytest

from autocoder.toolchains import Tree, plan_checks, recognise


def tree(*files: str, **manifests: str) -> Tree:
    named = {name.replace("_", "."): text for name, text in manifests.items()}
    return Tree([*files, *named], named)


def commands(project: Tree, environment: str = "auto", **own: str) -> dict[str, str]:
    toolchain = recognise(project, environment)
    return {rule.check: rule.command for rule in plan_checks(project, toolchain, own)}


@pytest.mark.parametrize(
    ("project", "name"),
    [
        (tree("pyproject.toml"), "python"),
        (tree("requirements.txt", "index.js"), "python"),
        (tree("package.json", "tools/gen.py"), "node"),
        (tree("src/deep/main.py"), "python"),
        (tree("lib.mjs"), "node"),
    ],
)
def test_a_project_is_recognised_by_its_manifest_then_by_its_sources(
    project: Tree, name: str
) -> None:
    found = recognise(project, "auto")
    assert found and found.name == name


def test_a_folder_without_code_is_no_project() -> None:
    assert recognise(tree("notes.txt"), "auto") is None
    assert commands(tree("notes.txt")) == {}


def test_the_environment_that_was_asked_for_wins() -> None:
    found = recognise(tree("package.json"), "python")
    assert found and found.name == "python"


def test_a_bare_python_folder_gets_pytest_from_the_service() -> None:
    found = commands(tree("slugs.py", "test_slugs.py"))
    assert "pip" not in found["install"].replace("--without-pip", "")
    assert "-m pytest" in found["test"]


def test_a_package_is_installed_from_its_manifest() -> None:
    found = commands(tree("test_a.py", pyproject_toml="[project]\nname = 'a'\n"))
    assert "pip install --quiet -e ." in found["install"]


def test_settings_of_tools_alone_make_no_package() -> None:
    found = commands(tree("test_a.py", pyproject_toml="[tool.pytest.ini_options]\n"))
    assert "pip install" not in found["install"]


def test_requirements_are_installed() -> None:
    assert "-r requirements.txt" in commands(tree("requirements.txt", "a.py"))["install"]


def test_tests_that_pytest_would_not_find_run_with_unittest() -> None:
    assert "-m unittest" in commands(tree("calc.py", "tests.py"))["test"]


def test_a_python_project_without_tests_has_no_test_command() -> None:
    assert "test" not in commands(tree("calc.py"))


def test_npm_scripts_are_used() -> None:
    package = json.dumps({"scripts": {"test": "node --test", "build": "tsc"}})
    found = commands(tree(package_json=package))
    assert found == {"test": "npm test", "build": "npm run build"}


def test_the_placeholder_of_npm_init_is_no_test() -> None:
    package = json.dumps({"scripts": {"test": 'echo "Error: no test specified" && exit 1'}})
    assert "test" not in commands(tree("index.js", package_json=package))


def test_node_tests_without_a_script_run_with_nodes_own_runner() -> None:
    assert commands(tree("sum.js", "sum.test.js", package_json="{}"))["test"] == "node --test"


def test_a_lock_file_is_respected() -> None:
    assert commands(tree("package-lock.json", package_json="{}"))["install"].startswith("npm ci")


@pytest.mark.parametrize("broken", ["", "[]", "{", '{"scripts": 5}', '{"scripts": {"test": 1}}'])
def test_a_broken_manifest_is_left_to_npm(broken: str) -> None:
    assert "test" not in commands(tree("index.js", package_json=broken))


def test_the_senders_commands_replace_and_add() -> None:
    found = commands(tree("a.py", "test_a.py"), test="make check", docs="make docs")
    assert found["test"] == "make check"
    assert list(found)[-1] == "docs"
