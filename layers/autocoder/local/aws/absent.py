"""Stands in for the services of moto that this project never calls, so that they need no import."""

import importlib.abc
import importlib.machinery
from collections.abc import Sequence
from types import ModuleType
from typing import Any

# fmt: off
UNUSED_SERVICES = frozenset((
    "apigateway", "autoscaling", "batch", "datapipeline", "ec2", "ecs", "efs", "elb", "elbv2",
    "emr", "iot", "rds", "redshift", "route53", "sagemaker",
))
# fmt: on


class AbsentServices(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives `moto.<unused service>` as a module in which every name is an empty class."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        package, *rest = fullname.split(".")
        if package == "moto" and rest and rest[0] in UNUSED_SERVICES:
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _AbsentModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""


class _AbsentModule(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        placeholder = _AbsentClass(name, (), {})
        setattr(self, name, placeholder)
        return placeholder


class _AbsentClass(type):
    def __getattr__(cls, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return f"absent:{name}"
