"""Requests and answers of the API, from which its description follows."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue

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


class Sampling(Request):
    """How to draw a translation instead of searching for the best."""

    temperature: float = Field(1.0, gt=0, le=10)
    top_k: int | None = Field(None, ge=1, le=100_000)
    top_p: float | None = Field(None, gt=0, le=1)
    seed: int = Field(0, ge=0, le=2**31)


class TranslateRequest(Request):
    """Texts to translate; one text is a list of one."""

    texts: list[Text] = Field(min_length=1, max_length=INPUTS)
    beam: int = Field(5, ge=1, le=BEAM, description="1 is greedy search")
    n_best: int = Field(1, ge=1, le=BEAM, description="translations of each text, at most `beam`")
    penalty: float = Field(0.6, ge=0, le=10, description="length penalty, Wu et al. 2016, eq. 14")
    prefix: Annotated[str, Field(max_length=1000)] | None = Field(
        None, description="how every translation begins"
    )
    sampling: Sampling | None = None
    alignments: bool = Field(False, description="whether to return weights of the source tokens")
    stream: bool = Field(
        False, description="send the tokens of one text as they come; needs beam 1 or sampling"
    )
    timeout: Seconds = 30.0

    def options(self) -> dict[str, Any]:
        """Return the options of `Translator.predict`."""
        options: dict[str, Any] = {"n_best": self.n_best, "return_map": self.alignments}
        if self.sampling is not None:
            return options | {"sampling": self.sampling.model_dump(exclude_none=True)}
        return options | {"beam": self.beam, "penalty": self.penalty}


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
