"""What a deployer chooses, in cdk.json under "autocoder". This class is its documentation."""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

ROOT = Path(__file__).parent.parent

# Without wildcards: each name gets an address in the template's /etc/hosts.
HostName = Annotated[str, Field(pattern=r"^[a-z0-9-]+(\.[a-z0-9-]+)+$")]


class Settings(BaseModel):
    """The deployer's choices; a missing or unknown one is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stage: str = Field(
        pattern=r"^[a-z][a-z0-9-]{0,19}$",
        description="names the stack, so that several live in one account",
    )
    max_running: int = Field(ge=1, le=1000, description="tasks that run at once")
    retention_days: int = Field(ge=1, description="how long records, results and feeds stay")
    model: str = Field(description="full model id, when the message has none")
    e2b_template: str = Field(description="a template with Claude Code and Python")
    e2b_secret_name: str = Field(description="the E2B API key, in Secrets Manager")
    anthropic_secret_name: str = Field(description="the Anthropic API key, in Secrets Manager")
    injected_secret_name: str = Field(description="E2B's own copy of it, which it adds outside")
    key_in_sandbox: bool = Field(description="True puts it into sandboxes: agents can read it")
    model_host: HostName
    extra_hosts: list[HostName] = Field(description="what sandboxes may reach besides registries")
    sandbox_cpus: int = Field(ge=1, le=8, description="the template's size, as is the memory")
    sandbox_memory_mb: int = Field(ge=1024, le=8192, multiple_of=2)

    @property
    def stack_name(self) -> str:
        """The stack's name in CloudFormation."""
        return f"Autocoder-{self.stage}"
