"""What a deployer chooses, in cdk.json under "autocoder". This class is its documentation."""

import json
from pathlib import Path

from constructs import Construct
from pydantic import BaseModel, ConfigDict, Field

ROOT = Path(__file__).parent.parent


class Settings(BaseModel):
    """The deployer's choices; an unknown one is an error, not ignored."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stack_name: str = Field("Autocoder", pattern=r"^[A-Za-z][A-Za-z0-9-]{0,30}$")
    max_running: int = Field(10, ge=1, le=1000, description="tasks that run at once")
    retention_days: int = Field(90, ge=1, description="how long records, results and logs stay")
    model: str = Field("claude-sonnet-5-5", description="full model id, when the message has none")
    e2b_template: str = Field("autocoder", description="a template with Claude Code and Python")
    e2b_secret_name: str = Field("autocoder/e2b-api-key", description="in Secrets Manager")

    @classmethod
    def from_context(cls, scope: Construct) -> "Settings":
        """Read cdk.json, also where the CDK CLI is not there to pass it on; -c wins."""
        chosen = scope.node.try_get_context("autocoder")
        if chosen is None:
            chosen = json.loads((ROOT / "cdk.json").read_text())["context"]["autocoder"]
        return cls.model_validate(json.loads(chosen) if isinstance(chosen, str) else chosen)
