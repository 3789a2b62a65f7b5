"""Tables of a configuration that several tasks have in common."""

from pydantic import Field, model_validator

from regard.training.settings import Settings


class NamedOrFile(Settings):
    """A table `[data]` of known data by name, or of a file; with neither, data is generated."""

    name: str | None = None
    folder: str | None = Field(None, description="where the files of a name are; or REGARD_DATA")
    path: str | None = None

    @model_validator(mode="after")
    def _one_source(self) -> "NamedOrFile":
        if self.name is not None and self.path is not None:
            raise ValueError("give name or path, not both")
        return self


class NoLoss(Settings):
    """The table `[loss]`, which is empty: the loss is cross entropy."""
