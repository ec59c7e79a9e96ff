"""What a deployer chooses, in cdk.json under "autocoder". This class is its documentation."""

import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from autocoder.errors import Mendable

ROOT = Path(__file__).parent.parent
SECTION = "autocoder"
LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"


class SettingsError(Mendable):
    """cdk.json can't be used; the text has a sentence for each setting that is wrong."""


def matching(pattern: str, rule: str) -> AfterValidator:
    """Hold a text to a pattern; who breaks it is told the rule, not the pattern."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(rule)
        return value

    return AfterValidator(check)


StageName = Annotated[
    str,
    matching(
        r"[a-z]([a-z0-9-]{0,18}[a-z0-9])?",
        "must be 1 to 20 of a-z, 0-9 and '-', begin with a letter and not end in '-'",
    ),
]
# Without wildcards: each name gets an address in the template's /etc/hosts.
HostName = Annotated[
    str,
    matching(
        rf"(?=.{{1,253}}$)({LABEL}\.)+(?=[a-z]){LABEL}",
        "must be a host's full name in small letters, such as api.example.com: no scheme, no "
        "port, no wildcard, no address",
    ),
]
ModelId = Annotated[
    str,
    matching(
        r"[A-Za-z0-9._:@/-]{0,64}claude-[A-Za-z0-9._:@/-]{1,64}",
        "must be a full model id, such as claude-sonnet-5-5; an alias such as sonnet is none",
    ),
]
SecretName = Annotated[
    str,
    matching(
        r"[A-Za-z0-9/_+=.@-]{1,512}",
        "must be a name that Secrets Manager allows: 1 to 512 of A-Z, a-z, 0-9 and /_+=.@-",
    ),
]
InjectedName = Annotated[
    str, matching(r"[A-Za-z0-9._-]{0,128}", "must be at most 128 of A-Z, a-z, 0-9, '.', '_', '-'")
]
TemplateName = Annotated[
    str,
    matching(
        r"[a-z0-9][a-z0-9_-]{0,127}",
        "must be a template's name in E2B: 1 to 128 of a-z, 0-9, '_' and '-', without a tag",
    ),
]

Language = Literal["python", "node", "go", "rust"]


class Settings(BaseModel):
    """The deployer's choices; a missing or unknown one is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stage: StageName = Field(
        description="names the stack, `Autocoder-<stage>`, so that several live in one account"
    )
    max_running: int = Field(
        ge=1,
        le=1000,
        description="tasks that run at once. Each is one sandbox, of which your E2B plan has a "
        "limit, and one running Lambda function: keep it 20 below the account's concurrency",
    )
    retention_days: int = Field(
        ge=1, le=3653, description="how long records, results, feeds and logs stay"
    )
    model: ModelId = Field(description="the full model id where a message names none")
    e2b_template: TemplateName = Field(
        description="the template in E2B, with Claude Code and Python. Set-up builds it; stages "
        "may share the name, each uses the build that fits it"
    )
    e2b_secret_name: SecretName = Field(description="the E2B API key, in Secrets Manager")
    anthropic_secret_name: SecretName = Field(
        description="the Anthropic API key, in Secrets Manager"
    )
    injected_secret_name: InjectedName = Field(
        description="E2B's own copy of the Anthropic key, which it adds to requests outside of "
        "sandboxes; empty means that no agent can be answered"
    )
    key_in_sandbox: bool = Field(
        description="leave it `false`. `true` puts the Anthropic key into every sandbox's "
        "environment, where the agent and all that it runs can read it and carry it off; meant "
        "for an E2B team that has no secrets"
    )
    model_host: HostName = Field(description="where the model answers")
    extra_hosts: list[HostName] = Field(
        description="hosts that sandboxes may reach besides the registries: full names, no "
        "wildcards, no ports"
    )
    sandbox_cpus: int = Field(ge=1, le=8, description="a sandbox's vCPUs")
    sandbox_memory_mb: int = Field(
        ge=1024, le=8192, multiple_of=2, description="a sandbox's memory, in MiB"
    )
    sandbox_languages: list[Language] = Field(
        description="the languages whose tools sandboxes have: `python` and `node` always, `go` "
        "and `rust` from Debian's packages if named. Where their modules come from goes into "
        "`extra_hosts`. A template is built anew when it changes: run `autocoder setup`"
    )

    @model_validator(mode="after")
    def secrets_differ(self) -> Self:
        """One secret can't hold two keys."""
        if self.e2b_secret_name == self.anthropic_secret_name:
            raise ValueError("e2b_secret_name and anthropic_secret_name must be two secrets")
        return self

    @property
    def stack_name(self) -> str:
        """The stack's name in CloudFormation."""
        return f"Autocoder-{self.stage}"

    @classmethod
    def load(cls, stage: str | None = None, file: Path = ROOT / "cdk.json") -> Self:
        """Read cdk.json, for the stack and for set-up alike; `stage` is another than the file's."""
        chosen = context(file).get(SECTION)
        if not isinstance(chosen, dict):
            raise SettingsError(
                f"{file.name}: context.{SECTION}: is missing or no object; put the settings there."
            )
        try:
            return cls.model_validate(chosen if stage is None else {**chosen, "stage": stage})
        except ValidationError as error:
            raise SettingsError("\n".join(f"{file.name}: {s}" for s in sentences(error))) from None


def context(file: Path = ROOT / "cdk.json") -> dict[str, Any]:
    """CDK's context as cdk.json has it: our settings, and CDK's own flags."""
    try:
        found = json.loads(file.read_text()).get("context")
    except (OSError, ValueError, AttributeError) as error:
        raise SettingsError(
            f"{file.name} can't be read as a JSON object: {error}. Correct it."
        ) from None
    if not isinstance(found, dict):
        raise SettingsError(f"{file.name}: context: is missing or no object; put it back.")
    return found


def sentences(error: ValidationError) -> list[str]:
    """Say each finding of pydantic's as setting, rule, and what was found."""
    said = []
    for problem in error.errors(include_url=False, include_context=False):
        setting = ".".join([SECTION, *map(str, problem["loc"])])
        match problem["type"]:
            case "extra_forbidden":
                known = ", ".join(Settings.model_fields)
                said.append(f"{setting}: is no setting; remove it (there are: {known}).")
            case "missing":
                said.append(f"{setting}: is missing; add it.")
            case "value_error" if not problem["loc"]:
                said.append(f"{setting}: {problem['msg'].removeprefix('Value error, ')}.")
            case _:
                rule = problem["msg"].removeprefix("Value error, ")
                rule = re.sub(r"^Input should ", "must ", rule)
                said.append(f"{setting}: {rule}, but it is {json.dumps(problem['input'])}.")
    return said
