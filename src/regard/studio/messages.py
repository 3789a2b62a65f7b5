"""What the requests and answers of the studio's API consist of."""

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, WithJsonSchema

from regard.tasks.search import at_most

LONGEST_TEXT = 20_000
LARGEST_UPLOAD = 2**24
MOST_IDS = 2000
MOST_EDITS = 50

RunName = Annotated[str, Field(min_length=1, max_length=300, description="a run of the list")]
Text = Annotated[str, Field(max_length=LONGEST_TEXT)]
Index = Annotated[int, Field(ge=0, le=2**31)]


def _matching(pattern: str, expected: str) -> AfterValidator:
    """A check for a pattern, whose error says in words what is expected."""

    def check(name: str) -> str:
        if not re.search(pattern, name):
            raise ValueError(f"should {expected}, got {name[:100]!r}")
        return name

    return AfterValidator(check)


NEW_RUN = r"^[A-Za-z0-9가-힣][A-Za-z0-9가-힣._-]{0,60}$"
NewRun = Annotated[
    str,
    _matching(
        NEW_RUN,
        "be up to 61 letters, digits, dots, hyphens and underscores, a letter or digit first",
    ),
    WithJsonSchema({"type": "string", "pattern": NEW_RUN}),
]
FILE = r"^.{0,195}\.(tsv|csv|jsonl|txt)$"
FileName = Annotated[
    str,
    _matching(FILE, "end in .tsv, .csv, .jsonl or .txt"),
    WithJsonSchema({"type": "string", "pattern": FILE}),
]


class Given(BaseModel):
    """A request: unknown fields are errors."""

    model_config = ConfigDict(extra="forbid")


class Empty(Given):
    """A request without fields."""


# ------------------------------------------------------------------------------ runs


class RunEntry(BaseModel):
    """A run directory."""

    name: str
    task: str
    model: str = Field(description="its kind, such as luong")
    metrics: dict[str, float] = Field(description="of the model, on held-out data")
    is_trained: bool = Field(description="whether it has a model already")
    state: Literal["running", "paused", "stopped", "finished", "failed", "unknown"]
    checkpoints: list[int]


class RunList(BaseModel):
    """The runs below the given folders."""

    runs: list[RunEntry]


class NamedRun(Given):
    """One run."""

    run: RunName


class Examples(BaseModel):
    """Inputs that a model was not trained on."""

    texts: list[str] = Field(description="as a person would type them; empty if they are not text")
    count: int


# ------------------------------------------------------------------------------ look, edit


class Look(Given):
    """An input to show."""

    run: RunName
    text: Text | None = Field(None, description="what a person typed; or else example")
    example: Annotated[int, Field(ge=0, lt=1000)] | None = Field(
        None, description="the number of a test example"
    )
    beam: int = at_most("beam", 10)
    prefix: list[Index] = Field(
        [], max_length=MOST_IDS, description="ids that the output begins with"
    )
    checkpoint: Index | None = Field(None, description="a step; by default the model of the run")


class Choice(BaseModel):
    """A token that could stand at a place of the output."""

    id: int
    token: str
    probability: float


class Word(BaseModel):
    """A token of the output."""

    id: int
    token: str
    log_probability: float
    choices: list[Choice]


class Candidate(BaseModel):
    """A hypothesis of the beam."""

    text: str
    score: float = Field(description="log-probability")


class PageData(BaseModel):
    """What the views of a page show."""

    data: dict[str, Any]
    chunks: dict[str, str]


class Looked(BaseModel):
    """What a model answers, and what it attends to."""

    task: str
    text: str
    output: str
    candidates: list[Candidate]
    words: list[Word]
    has_picture: bool = Field(description="whether the task has a picture of its own")
    page: PageData | None = Field(description="None for a model without attention")
    milliseconds: float


class Edit(Given):
    """A part of the attention to hide, or to give a weight."""

    layer: str = Field("*", max_length=200, description="a module, or a pattern of modules")
    heads: list[Index] | None = Field(None, max_length=256)
    keys: list[Index] | None = Field(None, max_length=MOST_IDS)
    cells: list[tuple[Index, Index]] | None = Field(
        None, max_length=MOST_IDS, description="pairs of a query and a key"
    )
    weight: float = Field(0.0, ge=0, le=1, description="0 hides")


class File(Look):
    """A view as a file."""

    format: Literal["png", "svg", "html", "attn"]
    language: Literal["en", "ko"] = "en"
    edits: list[Edit] = Field([], max_length=MOST_EDITS, description="with them the beam is 1")


class WhyWord(Given):
    """A word of an output that is to be explained."""

    run: RunName
    text: Text
    written: list[Index] = Field(min_length=1, max_length=MOST_IDS, description="ids of the output")
    at: Index = Field(description="the place of the word in the output")
    checkpoint: Index | None = Field(None, description="a step; by default the model of the run")
    language: Literal["en", "ko"] = "en"


class EditedLook(Given):
    """An input, and what to change in the attention."""

    run: RunName
    text: Text
    edits: list[Edit] = Field(max_length=MOST_EDITS)


class Change(BaseModel):
    """A token of the unedited output, and what the edits do to its log-probability."""

    token: str
    before: float
    after: float


class Edited(BaseModel):
    """The answers before and after."""

    before: Looked
    after: Looked
    changes: list[Change] = Field(description="of the tokens before; empty if the task writes none")
    similarity: float | None = Field(
        None, description="of an encoder: the cosine of its mean vectors before and after"
    )


class Comparison(Given):
    """An input for several runs; the page computes mechanisms without a model itself."""

    runs: list[RunName] = Field(min_length=1, max_length=4)
    text: Text


class Compared(BaseModel):
    """The answer of one run."""

    name: str
    error: str | None = Field(default=None, description="why it has no answer")
    looked: Looked | None = None
    model: str = ""
    metrics: dict[str, float] = {}
    entropy: float | None = Field(default=None, description="mean over rows and heads, in nats")
    same_output: PageData | None = Field(
        default=None, description="its attention while it writes the output of the first run"
    )


class Comparisons(BaseModel):
    """One answer for each run."""

    compared: list[Compared]


# ------------------------------------------------------------------------------ attention, gallery

ScoreName = Literal["dot", "scaled_dot", "cosine", "additive"]
MaskName = Literal["none", "causal", "window"]
NormalizerName = Literal["softmax", "sparsemax", "entmax15", "hard", "sigmoid", "sink"]
Scale = Annotated[float, Field(ge=0, le=100, description="the scores are multiplied by it")]


class ModelAttention(Given):
    """The queries, keys and values of one head of a model, attended to in another way."""

    run: RunName
    text: Text
    layer: str = Field(max_length=200)
    head: Index = 0
    score: ScoreName | Literal["own"] = "own"
    mask: MaskName | Literal["own"] = "own"
    normalizer: NormalizerName | Literal["own"] = "own"
    scale: Scale = 1.0


class ExhibitText(BaseModel):
    """What is written about a mechanism of the gallery in one language."""

    room: str
    title: str
    formula: str
    paper: str
    caption: str
    rows: list[str]
    columns: list[str]


class ExhibitEntry(BaseModel):
    """A mechanism of the gallery."""

    name: str
    code: str
    guide: str = Field(description="the chapter of the guide about it")
    weights: list[list[float]]
    texts: dict[str, ExhibitText] = Field(description="by language, en and ko")


class ExhibitList(BaseModel):
    """Every mechanism."""

    exhibits: list[ExhibitEntry]
    has_docs: bool = Field(description="whether the documentation is at /docs/")


class NamedExhibit(Given):
    """One mechanism."""

    name: str = Field(max_length=100)


class CostCurve(BaseModel):
    """Times of one forward pass on this machine, in milliseconds."""

    lengths: list[int]
    milliseconds: list[float]
    dense: list[float] = Field(description="of torch's scaled_dot_product_attention")


# ------------------------------------------------------------------------------ training


class Recipe(BaseModel):
    """A packaged configuration."""

    name: str
    description: str
    task: str
    settings: dict[str, str] = Field(description="what one may want to change, with its value")


class RecipeList(BaseModel):
    """Every recipe."""

    recipes: list[Recipe]


class Upload(Given):
    """A file of one's own, as text."""

    task: Literal["translate", "classify", "language"] = Field(
        "translate", description="whether it has pairs of texts, texts with labels, or plain text"
    )
    name: FileName
    text: str = Field(max_length=LARGEST_UPLOAD)


class Preview(BaseModel):
    """What a file contains."""

    upload: str = Field(description="by which training finds it")
    rows: list[list[str]]
    count: int
    skipped: int
    problems: list[str]


class Start(Given):
    """A training to start."""

    name: NewRun = Field(description="of the new run")
    recipe: str | None = Field(None, max_length=100)
    upload: str | None = Field(None, max_length=100)
    settings: list[Annotated[str, Field(max_length=200)]] = Field([], max_length=30)


class Control(Given):
    """What to do with a training."""

    run: RunName
    action: Literal["pause", "resume", "stop"]


class Point(BaseModel):
    """A line of a training's log."""

    step: int
    seconds: float | None = None
    loss: float | None = None
    valid: dict[str, float] = {}


class Progress(BaseModel):
    """How far a training is."""

    run: str
    state: str
    points: list[Point]
    known: int = Field(description="lines of the log so far")
    checkpoints: list[int]
    metric: str | None = None
    message: str | None = Field(None, description="why it failed")


class Follow(Given):
    """A training to follow."""

    run: RunName
    after: Index = Field(0, description="lines of the log that are known")
