"""Which commands check which project."""

import json
import shlex

import pytest

from autocoder.toolchains import (
    TOOLCHAINS,
    Check,
    Toolchain,
    asked_for,
    find_tool,
    plan_acceptance,
    plan_checks,
    recognise,
)
from autocoder.tree import Tree


def tree(*files: str, **manifests: str) -> Tree:
    named = {name.replace("_", "."): text for name, text in manifests.items()}
    return Tree([*files, *named], named)


def checks(project: Tree, environment: str = "auto", **own: str) -> dict[str, Check]:
    toolchain = recognise(project, environment)
    return {check.name: check for check in plan_checks(project, toolchain, own)}


def commands(project: Tree, environment: str = "auto", **own: str) -> dict[str, str]:
    return {name: check.command for name, check in checks(project, environment, **own).items()}


def package(test: str, **more: object) -> Tree:
    content = {"scripts": {"test": test}, **more}
    return tree("a.test.js", package_json=json.dumps(content))


@pytest.mark.parametrize(
    ("project", "name"),
    [
        (tree("pyproject.toml"), "python"),
        (tree("requirements.txt", "index.js"), "python"),
        (tree("package.json", "tools/gen.py"), "node"),
        (tree("src/deep/main.py"), "python"),
        (tree("lib.mjs"), "node"),
        (tree("go.mod", "tools/gen.py"), "go"),
        (tree("cmd/main.go"), "go"),
        (tree("Cargo.toml", "build.py"), "rust"),
        (tree("src/lib.rs"), "rust"),
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
    assert found["install"].startswith("python3 -m venv --system-site-packages ../.autocoder/venv")
    assert "observer.py pytest" in found["test"]


def test_a_package_is_installed_from_its_manifest() -> None:
    found = commands(tree("test_a.py", pyproject_toml="[project]\nname = 'a'\n"))
    assert "pip install --quiet -e '.'" in found["install"]


def test_settings_of_tools_alone_make_no_package() -> None:
    found = commands(tree("test_a.py", pyproject_toml="[tool.pytest.ini_options]\n"))
    assert "install --quiet -e" not in found["install"]


def test_requirements_are_installed() -> None:
    assert "-r requirements.txt" in commands(tree("requirements.txt", "a.py"))["install"]


def test_tests_that_pytest_would_not_find_run_with_unittest() -> None:
    assert "observer.py unittest" in commands(tree("calc.py", "tests.py"))["test"]


def test_a_python_project_without_tests_has_no_test_command() -> None:
    assert "test" not in commands(tree("calc.py"))


def test_npm_scripts_are_used() -> None:
    content = json.dumps({"scripts": {"test": "mocha", "build": "tsc"}})
    assert commands(tree(package_json=content)) == {"test": "npm test", "build": "npm run build"}


@pytest.mark.parametrize(
    ("script", "run"),
    [
        ("node --test", "node --test REPORTERS"),
        ("node --import tsx --test test/", "node --import tsx --test REPORTERS test/"),
        ("tsc && node --test; true", "{ tsc; } </dev/null && node --test REPORTERS; true"),
        ("node --test --test-reporter=./own.mjs", "node --test REPORTERS"),
        ("node --test 'a/*.test.{js,mjs}'", "node --test REPORTERS 'a/*.test.{js,mjs}'"),
        (
            "cd a && tsc -b; c8 tsx --test",
            "{ cd a && tsc -b; } </dev/null; c8 tsx --test REPORTERS",
        ),
        ("tsc | node --test", "{ tsc; } </dev/null | node --test REPORTERS"),
        ("jest --coverage", "jest --json --outputFile=$RESULTS --coverage"),
        ("CI=1 npx jest", "CI=1 npx jest --json --outputFile=$RESULTS"),
        ("node_modules/.bin/jest|cat", "node_modules/.bin/jest --json --outputFile=$RESULTS|cat"),
    ],
)
def test_a_scripts_runner_gets_our_reporter(script: str, run: str) -> None:
    ours = "--test-reporter=spec --test-reporter-destination=stdout"
    ours += ' --test-reporter="$REPORTER" --test-reporter-destination=stdout'
    found = checks(package(script))["test"]
    assert shlex.quote(run.replace("REPORTERS", ours)) in found.command
    assert found.counted == "observed"


def test_a_scripts_vitest_writes_its_report_and_ends() -> None:
    found = commands(package("vitest --coverage"))["test"]
    assert "vitest --run" in found
    assert "--outputFile.json=$RESULTS --coverage" in found


def test_what_comes_before_the_tests_is_run_on_its_own() -> None:
    content = json.dumps({"scripts": {"pretest": "tsc", "test": "jest"}})
    found = commands(tree(package_json=content))
    assert list(found) == ["pretest", "test"]
    assert found["pretest"] == "npm run pretest"
    assert "pretest" not in found["test"]


def test_a_script_that_goes_on_to_another_is_followed() -> None:
    scripts = {"test": "tsc && npm run unit", "unit": "npm run -s all", "all": "node --test a"}
    found = checks(tree(package_json=json.dumps({"scripts": scripts})))["test"]
    assert found.counted == "observed"
    assert "{ tsc; } </dev/null && node --test --test-reporter" in found.command
    endless = {"scripts": {"test": "npm run test"}}
    assert checks(tree(package_json=json.dumps(endless)))["test"].counted == "unseen"


@pytest.mark.parametrize("script", ["mocha", "tsc && nyc mocha 'a/*.{js,ts}'", "npx ava", "tap"])
def test_runners_that_nobody_observes_are_believed(script: str) -> None:
    found = checks(package(script))["test"]
    assert (found.command, found.counted) == ("npm test", "own")


@pytest.mark.parametrize(
    "script",
    [
        "echo jest-like",
        "my-jest",
        "echo jest",
        "node test.js",
        "nodemon --testing",
        "node run.js --test",
        "node fake.js jest",
        "./jest",
        "tools/node --test",
        "node --import ./own.mjs --test",
        "node --test --require ./own.cjs",
        "node --test --import 'data:text/javascript,1'",
        "node --env-file=.env --test",
        "NODE_OPTIONS=--import=./own.mjs node --test",
        "PATH=.:$PATH node --test",
        ". ./own.sh && node --test",
        "node() { ./own; }; node --test",
        "$(./own) && node --test",
        "npx --package=./own jest",
    ],
)
def test_other_scripts_are_left_as_they_are_and_not_believed(script: str) -> None:
    found = checks(package(script))["test"]
    assert (found.command, found.counted) == ("npm test", "unseen")


def test_a_senders_command_is_believed() -> None:
    project = package("node test.js")
    planned = plan_checks(project, recognise(project, "auto"), {"test": "npm test"})
    assert [check.counted for check in planned] == ["own"]


def test_types_and_lint_are_checked_where_the_project_configures_them() -> None:
    plain = commands(tree("a.py", "test_a.py"))
    assert not {"types", "lint"} & set(plain)
    python = commands(tree("a.py", pyproject_toml="[tool.mypy]\nstrict = true\n[tool.ruff]\n"))
    assert python["types"].endswith("mypy .")
    assert "ruff check" in python["lint"]
    named = commands(tree("a.py", pyproject_toml="[tool.mypy]\nfiles = ['a.py']\n"))
    assert named["types"].endswith("mypy")
    node = commands(tree("tsconfig.json", "eslint.config.js", package_json="{}"))
    assert "tsc --noEmit" in node["types"]
    assert "eslint ." in node["lint"]
    rust = commands(tree("rustfmt.toml", Cargo_toml="[lints.clippy]\nall = 'deny'\n"))
    assert "cargo fmt --check" in rust["lint"]
    assert "cargo clippy" in rust["lint"]
    assert "lint" not in commands(tree("Cargo.toml"))


def test_a_package_is_built_where_it_says_how() -> None:
    declared = commands(tree(pyproject_toml="[build-system]\nrequires = []\n"))
    assert "-m build" in declared["build"]
    assert "compileall" in commands(tree("a.py"))["build"]


def test_what_tests_need_is_installed_with_the_package() -> None:
    text = "[project]\nname = 'a'\n[project.optional-dependencies]\ntest = ['x']\ndocs = ['y']\n"
    assert "-e '.[test]'" in commands(tree(pyproject_toml=text))["install"]


def test_a_lock_of_uvs_is_respected() -> None:
    text = "[project]\nname = 'a'\n"
    assert "uv sync --quiet --frozen" in commands(tree("uv.lock", pyproject_toml=text))["install"]


def test_go_and_rust_have_all_their_checks() -> None:
    assert list(commands(tree("go.mod"))) == ["install", "build", "lint", "test"]
    assert list(commands(tree("Cargo.toml"))) == ["install", "build", "test"]


def test_custom_has_the_senders_commands_alone() -> None:
    assert commands(tree("a.py", "test_a.py"), "custom", test="make check") == {
        "test": "make check"
    }


@pytest.mark.parametrize("toolchain", TOOLCHAINS, ids=lambda toolchain: toolchain.name)
def test_every_toolchain_runs_acceptance_tests_and_observes_them(toolchain: Toolchain) -> None:
    check = plan_acceptance(tree(), toolchain, {"tests/a b.py": ""}, {})
    assert "{" not in check.command.replace("{ ", "")
    assert check.counted == "observed"
    assert "tests" in check.command or "'a b'" in check.command


def test_the_paths_of_acceptance_tests_are_quoted() -> None:
    hostile = "tests/$(touch x);'.test.js"
    for needs in ("jest", "vitest", "other"):
        content = json.dumps({"devDependencies": {needs: "*"}})
        project = tree(package_json=content)
        check = plan_acceptance(project, recognise(project, "auto"), {hostile: ""}, {})
        assert shlex.split(check.command)[-1] == hostile


@pytest.mark.parametrize(
    ("environment", "name", "version"),
    [
        ("python-3.11", "python", "3.11"),
        ("nodejs-18", "node", "18"),
        ("node-20", "node", "20"),
        ("go-1.21", "go", "1.21"),
        ("rust", "rust", ""),
        ("custom", "custom", ""),
    ],
)
def test_versions_are_asked_for_by_name(environment: str, name: str, version: str) -> None:
    toolchain, wanted = asked_for(environment)
    assert toolchain and (toolchain.name, wanted) == (name, version)


@pytest.mark.parametrize(
    "environment", ["auto-3", "custom-1", "cobol", "python-", "python-3.x", ""]
)
def test_other_environments_are_refused(environment: str) -> None:
    with pytest.raises(ValueError, match=r"nown are auto, python, node, go, rust, custom"):
        asked_for(environment)


def test_a_version_is_never_another() -> None:
    answers = {"python3": "Python 3.11.7", "python3.1": "Python 3.1.5", "python3.12": "none"}
    assert find_tool(answers, "3.11") == "python3"
    assert find_tool(answers, "3.1") == "python3.1"
    assert find_tool(answers, "3") == "python3"
    assert find_tool(answers, "3.12") is None
    assert find_tool({"go": "go version go1.19.8 linux/amd64"}, "1.19") == "go"


def test_the_version_that_was_found_is_the_one_that_is_used() -> None:
    project = tree("a.py")
    checks = plan_checks(project, recognise(project, "python-3.9"), {}, "python3.9")
    assert checks[0].command.startswith("python3.9 -m venv")


def test_the_placeholder_of_npm_init_is_no_test() -> None:
    content = json.dumps({"scripts": {"test": 'echo "Error: no test specified" && exit 1'}})
    assert "test" not in commands(tree("index.js", package_json=content))


def test_node_tests_without_a_script_run_with_nodes_own_runner() -> None:
    assert commands(tree("sum.js", "sum.test.js", package_json="{}"))["test"].startswith(
        "node --test --test-reporter"
    )


def test_a_lock_file_is_respected() -> None:
    assert commands(tree("package-lock.json", package_json="{}"))["install"].startswith("npm ci")


@pytest.mark.parametrize("broken", ["", "[]", "{", '{"scripts": 5}', '{"scripts": {"test": 1}}'])
def test_a_broken_manifest_is_left_to_npm(broken: str) -> None:
    assert "test" not in commands(tree("index.js", package_json=broken))


def test_the_senders_commands_replace_and_add() -> None:
    found = commands(tree("a.py", "test_a.py"), test="make check", docs="make docs")
    assert found["test"] == "make check"
    assert list(found)[-1] == "docs"
