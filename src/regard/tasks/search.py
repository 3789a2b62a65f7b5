"""Options of a search, declared once: for Python, the commands, the server and the studio."""

from typing import Any

from pydantic import Field, InstanceOf, model_validator

from regard.decoding import Limits
from regard.decoding.beam import MAX_SIZE
from regard.training.settings import Settings, read_settings

MBR_TEMPERATURE = 0.7


class Sampling(Settings):
    """How translations are drawn instead of searched for."""

    temperature: float = Field(1.0, gt=0, description="below 1 sharpens, above 1 flattens")
    top_k: int | None = Field(None, ge=1, description="draw from so many of the likeliest tokens")
    top_p: float | None = Field(
        None, gt=0, le=1, description="draw from the likeliest tokens of this total probability"
    )
    seed: int = Field(0, ge=0, description="of the random numbers")


class Search(Settings):
    """How a text is translated: by a beam, greedily, or by samples."""

    beam: int = Field(5, ge=1, le=MAX_SIZE, description="beam size; 1 is greedy search")
    n_best: int = Field(
        1, ge=1, le=MAX_SIZE, description="translations of each text, at most `beam`; or samples"
    )
    penalty: float = Field(0.6, ge=0, le=10, description="length penalty, Wu et al. 2016, eq. 14")
    sampling: Sampling | None = Field(None, description="draw translations instead of searching")

    @model_validator(mode="after")
    def _search_or_sample(self) -> "Search":
        if self.samples and {"beam", "penalty"} & self.model_fields_set:
            raise ValueError("beam and penalty are for searching, not for samples: leave them out")
        if not self.samples and self.n_best > self.beam:
            raise ValueError(f"n_best {self.n_best} needs a beam of {self.n_best} or more")
        return self

    @property
    def samples(self) -> bool:
        """Whether translations are drawn."""
        return self.sampling is not None


class SearchOptions(Search):
    """The options of `Translator.predict`."""

    mbr: int | None = Field(
        None, ge=2, le=1000, description="of so many samples, the one most like the others"
    )
    limits: InstanceOf[Limits] = Field(Limits(), description="how long translations may become")

    @model_validator(mode="after")
    def _one_of_many(self) -> "SearchOptions":
        if self.mbr is not None and self.n_best > 1:
            raise ValueError("mbr chooses one translation: leave out n_best")
        return self

    @property
    def samples(self) -> bool:
        """Whether translations are drawn."""
        return self.sampling is not None or self.mbr is not None

    @property
    def drawing(self) -> dict[str, Any]:
        """The options of `regard.decoding.sample`; those of `mbr` are sharper by default."""
        given = {} if self.sampling is None else self.sampling.model_dump(exclude_unset=True)
        return given if self.mbr is None else {"temperature": MBR_TEMPERATURE, **given}


BEAM: int = Search.model_fields["beam"].default


def at_most(name: str, largest: int) -> Any:
    """The field of an option with a smaller range, for those who answer requests."""
    field = Search.model_fields[name]
    return Field(field.default, ge=1, le=largest, description=field.description)


def search_options(**options: Any) -> SearchOptions:
    """Return the options of a search; those that are None have their defaults.

    >>> search_options(n_best=3, penalty=None).beam
    5

    Raises:
        ValueError: if one is out of range, or does not go with another
    """
    given = {name: value for name, value in options.items() if value is not None}
    if "sampling" in given:
        given["sampling"] = dict(given["sampling"])
    return read_settings(SearchOptions, given)
