"""What a deployer chooses, in cdk.json under "autocoder". This class is its documentation."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

ROOT = Path(__file__).parent.parent


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
    anthropic_secret_name: str = Field(description="the planner's API key, in Secrets Manager")

    @property
    def stack_name(self) -> str:
        """The stack's name in CloudFormation."""
        return f"Autocoder-{self.stage}"
