"""What the functions are told by their environment. Nothing is read at import."""

import json
import os
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from autocoder.errors import ConfigurationError
from autocoder.sandbox.egress import Egress

FromJson = BeforeValidator(lambda value: json.loads(value) if isinstance(value, str) else value)


class Settings(BaseModel):
    """One field, one variable, in capitals; infra/steps.py sets them from cdk.json."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    stack_name: str
    bucket_name: str
    tasks_table: str
    events_table: str
    retention_days: int
    dead_letters_url: str = ""
    state_machine_arn: str = ""
    max_running: int = 0
    sandbox_owner: str = ""
    e2b_secret_name: str = ""
    e2b_template: str = ""
    sandbox_cpus: int = 0
    sandbox_memory_mb: int = 0
    anthropic_secret_name: str = ""
    model: str = ""
    evidence_key: str = ""
    egress: Annotated[Egress, FromJson] = Egress()

    def execution_arn(self, name: str) -> str:
        """The execution of this name, whether it was started or not."""
        return f"{self.state_machine_arn.replace(':stateMachine:', ':execution:')}:{name}"

    @classmethod
    def from_environment(cls) -> "Settings":
        """Read the environment, now."""
        found = {name: os.environ.get(name.upper()) for name in cls.model_fields}
        try:
            return cls.model_validate({k: v for k, v in found.items() if v is not None})
        except ValidationError as error:
            names = ", ".join(str(e["loc"][0]).upper() for e in error.errors())
            raise ConfigurationError(
                "service_not_configured", f"These variables are missing or wrong: {names}."
            ) from None
