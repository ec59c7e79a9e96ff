"""The base of all data here."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """Data that never changes and holds nothing that it does not name."""

    model_config = ConfigDict(frozen=True, extra="forbid")
