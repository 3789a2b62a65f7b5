"""Configuration tables and types that several tasks share."""

from typing import Annotated

from pydantic import Field, model_validator

from regard.training.settings import Settings

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, lt=1)]


class NamedOrFile(Settings):
    """A table `[data]` of a dataset by name, or of a file; with neither, data is generated."""

    name: str | None = None
    folder: str | None = Field(None, description="folder of the named dataset; or REGARD_DATA")
    path: str | None = None

    @model_validator(mode="after")
    def _one_source(self) -> "NamedOrFile":
        if self.name is not None and self.path is not None:
            raise ValueError("give name or path, not both")
        return self


class NoLoss(Settings):
    """The table `[loss]` of a task that has nothing to set: it is empty."""
