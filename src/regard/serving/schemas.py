"""Requests and answers of the API, from which its description follows."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from regard.tasks.search import Search, at_most

CHARACTERS = 20_000  # of a text
INPUTS = 64  # of a request
BEAM = 20

Text = Annotated[str, Field(max_length=CHARACTERS)]
Seconds = Annotated[float, Field(gt=0, le=60, description="until the answer is 504")]


class Request(BaseModel):
    """An input; unknown fields are an error."""

    model_config = ConfigDict(extra="forbid", strict=True)


class PredictRequest(Request):
    """Inputs as `regard predict` takes them: texts, or JSON objects."""

    inputs: list[Text | dict[str, JsonValue]] = Field(min_length=1, max_length=INPUTS)
    length: int | None = Field(None, ge=1, le=1000, description="language: tokens to generate")
    temperature: float | None = Field(None, ge=0, le=10, description="language")
    top_k: int | None = Field(None, ge=1, le=100_000, description="language")
    seed: int | None = Field(None, ge=0, le=2**31, description="language")
    count: int | None = Field(None, ge=1, le=1000, description="recommend: items per user")
    timeout: Seconds = 30.0

    def options(self) -> dict[str, Any]:
        """Return the options of `predict` that were given."""
        return self.model_dump(exclude={"inputs", "timeout"}, exclude_none=True)


class PredictAnswer(BaseModel):
    """One prediction for each input, as `regard predict --json` prints them."""

    predictions: list[Any]


class TranslateRequest(Search, Request):
    """Texts to translate; one text is a list of one."""

    texts: list[Text] = Field(min_length=1, max_length=INPUTS)
    beam: int = at_most("beam", BEAM)
    n_best: int = at_most("n_best", BEAM)
    prefix: Annotated[str, Field(max_length=1000)] | None = Field(
        None, description="how every translation begins"
    )
    alignments: bool = Field(False, description="whether to return weights of the source tokens")
    stream: bool = Field(
        False, description="send the tokens of one text as they come; needs beam 1 or sampling"
    )
    timeout: Seconds = 30.0

    def options(self) -> dict[str, Any]:
        """Return the options of `Translator.predict`."""
        search = self.model_dump(include={*Search.model_fields}, exclude_unset=True)
        return {**search, "n_best": self.n_best, "return_map": self.alignments}


class Hypothesis(BaseModel):
    """One translation of a text."""

    text: str
    score: float = Field(description="log-probability in nats")
    tokens: list[str] = Field(description="of the text, with the end-of-sequence token")
    alignment: list[list[float]] | None = Field(
        None,
        description="a row for each of `tokens`: the weights of the source tokens, to 6 decimals",
    )


class TranslationAnswer(BaseModel):
    """The translations of one text, the best first."""

    source: list[str] = Field(description="tokens of the text")
    hypotheses: list[Hypothesis]


class TranslateAnswer(BaseModel):
    """The translations of each text."""

    translations: list[TranslationAnswer]


class Token(BaseModel):
    """Part of a stream: the newest token, and the text so far."""

    token: str
    text: str


class State(BaseModel):
    """Whether the server works."""

    status: str
    task: str
    engine: str = Field(description="torch, ctranslate2 or onnx")
