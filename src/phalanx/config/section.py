"""The base of all groups of settings."""

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A group of settings: unknown names are refused, nothing changes after validation."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)
