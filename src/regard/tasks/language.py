"""Language modelling: each character, or piece of a word, from those before it."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from regard.data import (
    Tokenizer,
    fingerprint,
    generate,
    load_or_train_tokenizer,
    load_tokenizer,
    train_tokenizer,
)
from regard.data.datasets import data_file
from regard.data.files import Report, format_of, text_lines
from regard.data.tables import TABLES, find_format, is_saved_dataset, read_columns
from regard.models import LanguageModel
from regard.tasks.classification import table
from regard.tasks.predictor import Predictor, check_inputs, check_traceable, field
from regard.tasks.run import load_model
from regard.tasks.settings import ConfiguredTask, Count, Table
from regard.trace import Trace, capture
from regard.training import Config, Loss, Settings, read_settings, stored_file
from regard.training.processes import shared, summed
from regard.training.run_directory import read_run_config

TOKENIZER = "tokenizer.json"
KNOWN = {"tinyshakespeare": "tinyshakespeare/input.txt"}
SPECIAL = 4  # ids of special tokens, which no text has


class Data(Table):
    """The table `[data]`; without `name` and `path` lines of dates are generated."""

    name: Literal["tinyshakespeare"] | None = Field(
        None, description="without name and path, lines of dates are generated"
    )
    path: str | None = Field(
        None,
        description="a text file, plain or compressed; or a .csv, .tsv, .jsonl (.gz or .zst of "
        "them) or .parquet, or a directory of save_to_disk",
    )
    text: int | str = Field("text", description="of a table: the column, or key, of the text")
    valid: float = Field(0.1, gt=0, lt=1, description="share at the end of the text for validation")
    tokenizer: Literal["characters", "bpe"] = Field("characters", description="what a token is")
    size: Count | None = Field(None, description="the largest number of tokens")
    context: int = Field(128, ge=2, description="tokens that are read at a time")
    batch: Count = Field(32, description="windows of text in a batch")
    count: Count = Field(4000, description="lines to generate")


class Model(Settings):
    """The table `[model]`: options of `LanguageModel`."""

    dim: Count = Field(192, description="width of the layers")
    heads: Count = Field(6, description="number of attention heads")
    hidden: Count = Field(768, description="width inside the feed-forward networks")
    layers: Count = Field(4, description="number of layers")
    norm: Literal["pre", "post"] = Field(
        "pre", description="normalize before or after each sublayer"
    )
    position: Literal["sinusoidal", "learned", "rotary", "alibi", "relative", "none"] = Field(
        "rotary", description="how positions are encoded"
    )
    tie: bool = Field(True, description="share the output's matrix with the embeddings")
    dropout: float = Field(0.1, ge=0, lt=1, description="of embeddings and layers")
    attention_dropout: float | None = Field(0.0, ge=0, lt=1, description="of attention weights")
    kv_heads: Count | None = Field(None, description="number of heads of keys and values, if fewer")


class TextGenerator(Predictor):
    """A language model and its tokenizer: a run of the task language.

    An input is a prompt, the beginning of a text.

    >>> letters = train_tokenizer("characters", ["abc"])
    >>> model = LanguageModel(len(letters), dim=12, heads=3, hidden=24, layers=1)
    >>> text = TextGenerator(model, letters, context=7).generate("ab", length=5, seed=1)
    >>> text.startswith("ab"), len(text)
    (True, 7)

    Args:
        model: a trained model
        tokenizer: of its text
        context: how many tokens it was trained on at a time
        config: of the run
    """

    task: ClassVar[str] = "language"

    def __init__(
        self, model: nn.Module, tokenizer: Tokenizer, config: Config | None = None, *, context: int
    ) -> None:
        self.model: Any = model.eval()
        self.tokenizer, self.config, self.context = tokenizer, config, context

    @classmethod
    def from_run(cls, directory: str | Path, device: str = "cpu") -> "TextGenerator":
        """Load a run directory of the task language."""
        run, config = Path(directory), read_run_config(directory)
        tokenizer = load_tokenizer(run / TOKENIZER)
        options = read_settings(Model, config.model, "model")
        context = read_settings(Data, config.data, "data").context
        model = load_model(partial(_build, options, len(tokenizer), context), run, device)
        return cls(model, tokenizer, config, context=context)

    def predict(
        self,
        inputs: Sequence[str],
        *,
        length: int = 200,
        temperature: float = 1.0,
        top_k: int | None = None,
        seed: int = 0,
    ) -> list[str]:
        """Continue each prompt, token by token.

        Args:
            inputs: how the texts begin; at least one character each
            length: how many tokens to add
            temperature: 0 takes the likeliest token, 1 samples by the model's own probabilities
            top_k: sample among so many of the likeliest
            seed: of the samples
        """
        check_inputs(inputs, "prompts")
        options: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "seed": seed}
        return [self.generate(prompt, length=length, **options) for prompt in inputs]

    @torch.no_grad()
    def generate(
        self,
        prompt: str = "\n",
        *,
        length: int = 200,
        temperature: float = 1.0,
        top_k: int | None = None,
        seed: int = 0,
    ) -> str:
        """Continue one prompt; the options are those of `predict`."""
        ids = self._encode(prompt)
        if length < 1 or temperature < 0 or (top_k is not None and top_k < 1):
            raise ValueError(
                "length and top_k must be at least 1 and temperature at least 0, got "
                f"length={length}, top_k={top_k}, temperature={temperature}"
            )
        draw = torch.Generator().manual_seed(seed)
        device = self.device
        state, features = None, torch.empty(0)
        for _ in range(length):
            if state is None or state.length >= self.context:
                # read again from half a context back: later positions were never trained
                state, pending = self.model.start(1), ids[-max(1, self.context // 2) :]
            else:
                pending = ids[-1:]
            for token in pending:
                features, state = self.model.step(torch.tensor([token], device=device), state)
            ids.append(_sample(self.model.output(features)[0].cpu(), temperature, top_k, draw))
        # the prompt as it was given, even where it has unknown letters
        read = self.tokenizer.decode(ids[:-length])
        return prompt + self.tokenizer.decode(ids).removeprefix(read)

    @torch.no_grad()
    def trace(self, input: str) -> Trace:
        """Return what each token of a text attends to, in every head of every layer."""
        check_traceable(self.model)
        ids = self._encode(input)[: self.context]
        with capture(self.model, inputs=True) as recorded:
            self.model(torch.tensor([ids], device=self.device))
        trace = recorded.label(source=self.tokenizer.tokens(ids)).of(0)
        return Trace(trace.calls, trace.tokens, {"task": self.task, "text": input})

    def parse(self, record: str | Mapping[str, Any]) -> str:
        """Return a line as it is, or `prompt` (or `text`) of a JSON object."""
        return record if isinstance(record, str) else field(record, "prompt", "text")

    def to_json(self, prediction: str) -> Any:
        """Return the text, the prompt included."""
        return {"text": prediction}

    def examples(self, count: int, split: str = "test") -> list[str]:
        """Return lines of the held-out end of the run's text."""
        data = self.data_settings(Data)
        text = _read(data, self.seed)
        lines = text[_cut(text, data) :].splitlines()[1:]
        return [line for line in lines if line.strip()][:count]

    @torch.no_grad()
    def evaluate(self, path: str | Path, **settings: Any) -> dict[str, float]:
        """Return nats per character and per token of the text of a file."""
        data = self.file_settings(Data, path, settings)
        text = _read(data, self.seed)
        ids = np.array(self.tokenizer.encode(text), np.int32)
        return text_metrics(self.model, ids, len(text), self.context, data.batch)

    def _encode(self, prompt: str) -> list[int]:
        ids = self.tokenizer.encode(prompt)
        if not ids:
            raise ValueError("expected a text of at least one character, such as a line break")
        return ids


def _build(options: Model, vocabulary: int, context: int) -> LanguageModel:
    """A model for a vocabulary; learned positions reach as far as the context."""
    return LanguageModel(vocabulary, max_length=context, **options.model_dump())


def _sample(logits: Tensor, temperature: float, top_k: int | None, draw: torch.Generator) -> int:
    """One token; special ones are never sampled."""
    logits = logits.clone()
    logits[:SPECIAL] = -torch.inf
    if temperature == 0:
        return int(logits.argmax())
    if top_k is not None:
        kth = logits.topk(min(top_k, len(logits) - SPECIAL)).values[-1]
        logits[logits < kth] = -torch.inf
    return int(torch.multinomial((logits / temperature).softmax(-1), 1, generator=draw))


class LanguageTask(ConfiguredTask):
    """A text: its first part is for training, its last part for validation.

    Args:
        data: the text
        model: options of `LanguageModel`
        seed: of where the windows of text begin
        run: a run directory whose tokenizer is used, instead of a new one
    """

    predictor = TextGenerator
    tables = (("data", Data), ("model", Model))
    unit = "tokens"
    metric = "nats_per_character"
    larger_is_better = False

    def __init__(self, data: Data, model: Model, seed: int = 1, run: Path | None = None) -> None:
        self.data, self.model, self.seed = data, model, seed
        text = _read(data, seed)
        cut = _cut(text, data)
        train, self.valid_text = text[:cut], text[cut:]
        self.tokenizer = load_or_train_tokenizer(
            stored_file(run, TOKENIZER),
            lambda: train_tokenizer(data.tokenizer, [train], size=data.size),
        )
        self.text = text
        self.train = np.array(self.tokenizer.encode(train), np.int32)
        self.valid = np.array(self.tokenizer.encode(self.valid_text), np.int32)
        shortest = min(len(self.train), len(self.valid))
        if shortest <= data.context:
            raise ValueError(
                f"a part of the text has {shortest} tokens, which is too short for data.context="
                f"{data.context}; lower it or give more text"
            )

    def build(self) -> LanguageModel:
        """Build a fresh model for this vocabulary."""
        return _build(self.model, len(self.tokenizer), self.data.context)

    def steps(self, epoch: int) -> int:
        """Return how many batches have as many tokens as the text."""
        return max(1, len(self.train) // (self.data.batch * self.data.context))

    def batch(self, epoch: int, step: int) -> Tensor:
        """Return windows of text that begin anywhere, (batch, context + 1)."""
        draw = np.random.default_rng((self.seed, epoch, step))
        starts = draw.integers(len(self.train) - self.data.context, size=self.data.batch)
        places = starts[:, None] + np.arange(self.data.context + 1)
        return torch.from_numpy(self.train[places].astype(np.int64))

    def loss(self, model: nn.Module, batch: Tensor) -> Loss:
        """Return the cross entropy of the next token, summed."""
        return Loss(_nats(model, batch).sum(), batch[:, 1:].numel())

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Return nats per character and per token of the held-out text but its first token."""
        data = self.data
        return text_metrics(model, self.valid, len(self.valid_text), data.context, data.batch)

    def write(self, run: Path) -> None:
        """Store the tokenizer."""
        self.tokenizer.save(run / TOKENIZER)

    def fingerprint(self) -> dict[str, str]:
        """Return the fingerprint of the text."""
        return {"text": fingerprint(self.text)}

    def describe(self) -> str:
        """Return statistics of the data as a table."""
        return table(
            {
                "text": f"{len(self.train):,} tokens for training, {len(self.valid):,} for "
                "validation",
                "tokens": f"{self.tokenizer.kind}, {len(self.tokenizer):,} kinds",
                "example": repr(self.valid_text[:100]),
            }
        )


def text_metrics(
    model: nn.Module, tokens: np.ndarray, characters: int, context: int, batch: int
) -> dict[str, float]:
    """Return nats per character and per token of the tokens of a text but the first.

    Windows overlap by a half and only their second half counts, so that every token, but for the
    first ones, is predicted with at least half a context before it.
    """
    ids = torch.from_numpy(tokens.astype(np.int64))
    T = min(context, len(ids) - 1)
    if T < 1:
        raise ValueError(f"expected a text of two tokens or more, got {len(ids)}")
    done = T
    windows = [(0, 0)]  # the first token read, the last one counted before
    while done < len(ids) - 1:
        end = min(done + max(1, T // 2), len(ids) - 1)
        windows.append((end - T, done))
        done = end

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        for start in range(0, len(windows), batch):
            some = windows[start : start + batch]
            rows = torch.stack([ids[first : first + T + 1] for first, _ in some])
            yield rows, torch.tensor([[before - first] for first, before in some])

    total = 0.0
    for rows, counted in shared(batches(), model):
        nats = _nats(model, rows)  # (batch, T)
        total += float(nats[torch.arange(T, device=rows.device) >= counted].double().sum())
    (total,) = summed(total)
    return {
        "nats_per_character": total / characters,
        "nats_per_token": total / (len(ids) - 1),
    }


def _nats(model: nn.Module, ids: Tensor) -> Tensor:
    """Return the surprise of each token of ids (batch, T + 1) but the first, (batch, T)."""
    logits = model.output(model(ids[:, :-1]))  # type: ignore[operator]
    return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view(
        len(ids), -1
    )


def _cut(text: str, data: Data) -> int:
    """Where the held-out end of the text begins."""
    return round(len(text) * (1 - data.valid))


def _read(data: Data, seed: int) -> str:
    if data.name is None and data.path is None:
        pairs = generate("dates", "train", count=data.count, seed=seed)
        return "".join(f"{source} = {target}\n" for source, target in pairs)
    name = str(data.name)
    path = Path(data.path) if data.path else data_file(name, KNOWN[name], data.folder)
    if data.format or format_of(path) in TABLES or is_saved_dataset(path):
        rows = read_columns(
            path,
            {"text": data.text},
            Report(path),
            format=find_format(path, data.format, TABLES),
            encoding=data.encoding,
            delimiter=data.delimiter,
            bad=data.bad,
        )
        return "".join(f"{text}\n" for (text,) in rows)
    text = "\n".join(line for _, line in text_lines(path, data.encoding)) + "\n"
    if not text.strip():
        raise ValueError(f"{path} is empty")
    return text
