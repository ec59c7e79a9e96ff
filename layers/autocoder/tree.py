"""A project as the rules of the toolchains see it."""

import fnmatch
import json
import re
import tomllib
from collections.abc import Iterable
from typing import Any

# The files whose text matters; of all others it is enough that they are there.
READ = ("pyproject.toml", "setup.cfg", "package.json", "Cargo.toml")


class Tree:
    """A project's file names, and the text of its manifests."""

    def __init__(self, files: Iterable[str], manifests: dict[str, str]) -> None:
        """`files` are paths within the project."""
        self.files = list(files)
        self.manifests = manifests

    def has(self, *patterns: str) -> bool:
        """Say whether a file at the top matches (a pattern with **/ matches at any depth)."""
        for pattern in patterns:
            deep = pattern.startswith("**/")
            wanted = pattern.removeprefix("**/")
            for path in self.files:
                name = path.rpartition("/")[2] if deep else path
                if fnmatch.fnmatchcase(name, wanted):
                    return True
        return False

    @property
    def package(self) -> dict[str, Any]:
        """Package.json, or an empty one where it is missing or broken (npm will say so)."""
        try:
            content = json.loads(self.manifests.get("package.json", "{}"))
        except (ValueError, RecursionError):
            return {}
        return content if isinstance(content, dict) else {}

    def script(self, name: str) -> str:
        """A script of package.json's; npm's own placeholder is none."""
        command = table(self.package, "scripts").get(name)
        text = command if isinstance(command, str) else ""
        return "" if "no test specified" in text else text

    def needs(self, *names: str) -> bool:
        """Say whether package.json names one of these, or any, as a dependency."""
        found = {**table(self.package, "dependencies"), **table(self.package, "devDependencies")}
        return any(name in found for name in names) if names else bool(found)

    def toml(self, manifest: str) -> dict[str, Any]:
        """A manifest in TOML, or an empty one where it is missing or broken (its tool will say)."""
        try:
            return tomllib.loads(self.manifests.get(manifest, ""))
        except (ValueError, RecursionError):
            return {}

    def configures(self, tool: str) -> dict[str, Any] | None:
        """What pyproject.toml says about a tool; None if it does not mention it."""
        tools = table(self.toml("pyproject.toml"), "tool")
        return table(tools, tool) if tool in tools else None

    @property
    def is_python_package(self) -> bool:
        """Pyproject.toml describes a package, not only the settings of tools."""
        text = self.manifests.get("pyproject.toml", "")
        return bool(re.search(r"^\[(project|build-system)\]", text, re.MULTILINE))

    def extras(self, *names: str) -> list[str]:
        """Those of the names that are optional dependencies of the package."""
        project = table(self.toml("pyproject.toml"), "project")
        return [name for name in names if name in table(project, "optional-dependencies")]


def table(content: dict[str, Any], name: str) -> dict[str, Any]:
    """A part of a manifest; what is no table is an empty one."""
    found = content.get(name)
    return found if isinstance(found, dict) else {}
