"""Configuration tables and types that several tasks share."""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from regard.data import fingerprint
from regard.training.config import Config
from regard.training.settings import Settings, read_settings

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, lt=1)]


class Table(Settings):
    """A table `[data]` of a dataset by name, or of a table of texts; else data is generated."""

    name: str | None = None
    folder: str | None = Field(None, description="folder of the named dataset; or REGARD_DATA")
    path: str | None = None
    format: Literal["csv", "tsv", "jsonl", "parquet", "dataset"] | None = Field(
        None, description="by default, by the name; dataset is a directory of save_to_disk"
    )
    encoding: str | None = Field(
        None,
        description="of a csv, tsv or jsonl, such as cp949; by default by its byte order mark, or "
        "UTF-8",
    )
    delimiter: str | None = Field(
        None, description="between columns of a csv or tsv; by default found in its first line"
    )
    bad: Literal["refuse", "skip"] = Field("refuse", description="how bad rows are handled")

    @model_validator(mode="after")
    def _one_source(self) -> "Table":
        if self.name is not None and self.path is not None:
            raise ValueError("give name or path, not both")
        return self


class NoLoss(Settings):
    """The table `[loss]` of a task that has nothing to set: it is empty."""


class ConfiguredTask:
    """What most tasks share: they are made of their tables, a seed and a run."""

    tables: ClassVar[tuple[tuple[str, type[Settings]], ...]]
    train: Any
    valid: Any

    @classmethod
    def from_config(cls, config: Config, run: Path | None = None) -> Self:
        """Make the task of a configuration.

        Args:
            run: a run directory whose tokenizers, classes and tables are used, if there are any
        """
        kinds: Any = {"loss": NoLoss, **dict(cls.tables)}
        read: Any = {
            name: read_settings(kinds[name], getattr(config, name), name) for name in kinds
        }
        make: Any = cls
        return make(*(read[name] for name, _ in cls.tables), seed=config.seed, run=run)

    def fingerprint(self) -> dict[str, str]:
        """Return fingerprints of the data."""
        return {"train": fingerprint(self.train), "valid": fingerprint(self.valid)}
