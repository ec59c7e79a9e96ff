"""The base of all data here."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """Data that never changes and holds nothing that it does not name."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Hashed(Frozen):
    """A file in a task's folder, by what it holds."""

    path: str  # relative to that folder
    bytes: int
    sha256: str
