"""Language modelling: each character, or piece of a word, from those before it."""

from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from regard.data import fingerprint, generate, load_or_train_tokenizer, train_tokenizer
from regard.data.datasets import data_file
from regard.data.lines import text_lines
from regard.models import LanguageModel
from regard.tasks.tables import NamedOrFile, NoLoss
from regard.tasks.writer import TOKENIZER, Model, Writer, build_language_model
from regard.training import Loss, stored_file
from regard.training.config import Config
from regard.training.settings import read_settings

Count = Annotated[int, Field(ge=1)]
KNOWN = {"tinyshakespeare": "tinyshakespeare/input.txt"}


class Data(NamedOrFile):
    """The table `[data]`; without `name` and `path` lines of dates are generated."""

    name: Literal["tinyshakespeare"] | None = None
    path: str | None = Field(None, description="a text file, plain or gzipped")
    valid: float = Field(0.1, gt=0, lt=1, description="the share at the end for validation")
    tokenizer: Literal["characters", "bpe"] = "characters"
    size: Count | None = Field(None, description="the largest number of tokens")
    context: int = Field(128, ge=2, description="tokens that are read at a time")
    batch: Count = Field(32, description="stretches of text in a batch")
    count: Count = Field(4000, description="lines to generate")


class Language:
    """The task of a text: its first part is learned, its last part judges.

    Args:
        data: the text
        model: options of `LanguageModel`
        seed: of where the stretches of text begin
    """

    unit = "tokens"
    metric = "nats_per_character"
    larger_is_better = False

    def __init__(self, data: Data, model: Model, seed: int = 1, run: Path | None = None) -> None:
        self.data, self.model, self.seed = data, model, seed
        text = _read(data, seed)
        cut = round(len(text) * (1 - data.valid))
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
                f"{data.context}; lower it or bring more text"
            )

    @classmethod
    def from_config(cls, config: Config, run: Path | None = None) -> "Language":
        """The task of a configuration, with the tokenizer of the run if one is given."""
        read_settings(NoLoss, config.loss, "loss")
        data = read_settings(Data, config.data, "data")
        return cls(data, read_settings(Model, config.model, "model"), config.seed, run)

    @classmethod
    def open(cls, run: Path) -> Writer:
        """What `regard.load` gives for a run of this task."""
        return Writer.open(run)

    # -------------------------------------------------------------- what the loop asks

    def build(self) -> LanguageModel:
        """A fresh model for this vocabulary."""
        return build_language_model(self.model, len(self.tokenizer), self.data.context)

    def steps(self, epoch: int) -> int:
        """How many batches have as many tokens as the text."""
        return max(1, len(self.train) // (self.data.batch * self.data.context))

    def batch(self, epoch: int, step: int) -> Tensor:
        """Stretches of text that begin anywhere, (batch, context + 1)."""
        draw = np.random.default_rng((self.seed, epoch, step))
        starts = draw.integers(len(self.train) - self.data.context, size=self.data.batch)
        places = starts[:, None] + np.arange(self.data.context + 1)
        return torch.from_numpy(self.train[places].astype(np.int64))

    def loss(self, model: nn.Module, batch: Tensor) -> Loss:
        """Cross entropy of the next token, summed."""
        return Loss(_nats(model, batch).sum(), batch[:, 1:].numel())

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Nats for each token and each character of the whole held-out text but its first token.

        Windows overlap by a half and count their second half alone, so that every token, but for
        the first ones, is judged with at least half a context before it.
        """
        T = self.data.context
        half = T // 2
        text = torch.from_numpy(self.valid.astype(np.int64))
        total = float(_nats(model, text[None, : T + 1]).sum())
        judged = T
        windows = []
        while judged < len(text) - 1:
            end = min(judged + half, len(text) - 1)
            windows.append((end - T, judged))  # the first token read, the last one judged before
            judged = end
        for start in range(0, len(windows), self.data.batch):
            some = windows[start : start + self.data.batch]
            rows = torch.stack([text[first : first + T + 1] for first, _ in some])
            nats = _nats(model, rows)  # (batch, T)
            for row, (first, before) in enumerate(some):
                total += float(nats[row, before - first :].sum())
        return {
            "nats_per_character": total / len(self.valid_text),
            "nats_per_token": total / (len(text) - 1),
        }

    def write(self, run: Path) -> None:
        """Store the tokenizer."""
        self.tokenizer.save(run / TOKENIZER)

    def fingerprint(self) -> dict[str, str]:
        """The fingerprint of the text."""
        return {"text": fingerprint(self.text)}

    def describe(self) -> str:
        """Statistics of the data, for people."""
        rows = {
            "text": f"{len(self.train):,} tokens for training, {len(self.valid):,} for validation",
            "tokens": f"{self.tokenizer.kind}, {len(self.tokenizer):,} kinds",
            "example": repr(self.valid_text[:100]),
        }
        return "\n".join(f"{name:<12}{value}" for name, value in rows.items())


def _nats(model: nn.Module, ids: Tensor) -> Tensor:
    """What each token of ids (batch, T + 1), but the first, costs: (batch, T)."""
    logits = model.output(model(ids[:, :-1]))  # type: ignore[operator]
    return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view(
        len(ids), -1
    )


def _read(data: Data, seed: int) -> str:
    if data.name is None and data.path is None:
        pairs = generate("dates", "train", count=data.count, seed=seed)
        return "".join(f"{source} = {target}\n" for source, target in pairs)
    name = str(data.name)
    path = Path(data.path) if data.path else data_file(name, KNOWN[name], data.folder)
    text = "\n".join(line for _, line in text_lines(path)) + "\n"
    if not text.strip():
        raise ValueError(f"{path} is empty")
    return text
