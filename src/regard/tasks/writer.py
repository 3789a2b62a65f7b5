"""A trained language model: what `regard.load` gives for a run of `language`."""

from pathlib import Path
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from regard.data import Tokenizer, load_tokenizer
from regard.models import LanguageModel
from regard.tasks.run import load_weights
from regard.training.run_directory import read_run_config
from regard.training.settings import Settings, read_settings

Count = Annotated[int, Field(ge=1)]
TOKENIZER = "tokenizer.json"


class Model(Settings):
    """The table `[model]`: options of `LanguageModel`."""

    dim: Count = 192
    heads: Count = 6
    hidden: Count = 768
    layers: Count = 4
    norm: Literal["pre", "post"] = "pre"
    position: Literal["sinusoidal", "learned", "rotary", "alibi", "none"] = "rotary"
    tie: bool = True
    dropout: float = Field(0.1, ge=0, lt=1)
    attention_dropout: float | None = Field(0.0, ge=0, lt=1)
    kv_heads: Count | None = None


class Writer:
    """A model and its tokenizer.

    >>> from regard.data import train_tokenizer
    >>> letters = train_tokenizer("characters", ["abc"])
    >>> model = LanguageModel(len(letters), dim=12, heads=3, hidden=24, layers=1)
    >>> text = Writer(model, letters, context=7).generate("ab", length=5, seed=1)
    >>> text.startswith("ab"), len(text)
    (True, 7)

    Args:
        model: a trained model
        tokenizer: of its text
        context: how many tokens it was trained to look back at
    """

    def __init__(self, model: LanguageModel, tokenizer: Tokenizer, *, context: int) -> None:
        self.model, self.tokenizer, self.context = model.eval(), tokenizer, context

    @classmethod
    def open(cls, run: str | Path) -> "Writer":
        """A run of the task `language`."""
        run, config = Path(run), read_run_config(run)
        tokenizer = load_tokenizer(run / TOKENIZER)
        options = read_settings(Model, config.model, "model")
        context = int(config.data.get("context", 128))
        model = build_language_model(options, len(tokenizer), context)
        load_weights(model, run)
        return cls(model, tokenizer, context=context)

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
        """Go on with a prompt, token by token.

        Args:
            prompt: how the text begins; at least one character
            length: how many tokens to add
            temperature: 0 takes the likeliest token, 1 draws by the model's own probabilities
            top_k: draw among so many of the likeliest
            seed: of the draws
        """
        ids = self.tokenizer.encode(prompt)
        if not ids:
            raise ValueError("a prompt needs at least one character, a line break will do")
        if length < 1 or temperature < 0 or (top_k is not None and top_k < 1):
            raise ValueError(
                "length and top_k must be at least 1 and temperature at least 0, got "
                f"length={length}, top_k={top_k}, temperature={temperature}"
            )
        draw = torch.Generator().manual_seed(seed)
        state, features = None, torch.empty(0)
        for _ in range(length):
            if state is None or state.length >= self.context:
                # read again from half a context back, so that no position was never trained
                state = self.model.start(1)
                for token in ids[-max(1, self.context // 2) :]:
                    features, state = self.model.step(torch.tensor([token]), state)
            else:
                features, state = self.model.step(torch.tensor([ids[-1]]), state)
            ids.append(_drawn(self.model.output(features)[0], temperature, top_k, draw))
        # the prompt as it was given, also where the model does not know a letter of it
        read = self.tokenizer.decode(ids[:-length])
        return prompt + self.tokenizer.decode(ids).removeprefix(read)

    @torch.no_grad()
    def attention(self, text: str) -> tuple[list[str], dict[str, Tensor]]:
        """The tokens of a text, and for each layer the map of every head, (heads, T, T)."""
        ids = self.tokenizer.encode(text)[: self.context]
        if not ids:
            raise ValueError("to look at attention there must be a text")
        _, maps = self.model(torch.tensor([ids]), return_map=True)
        return self.tokenizer.tokens(ids), {name: map.dense()[0] for name, map in maps.items()}


def build_language_model(options: Model, vocabulary: int, context: int) -> LanguageModel:
    """A model for a vocabulary; learned positions reach as far as the context."""
    return LanguageModel(vocabulary, max_length=context, **options.model_dump())


def _drawn(logits: Tensor, temperature: float, top_k: int | None, draw: torch.Generator) -> int:
    """One token; the special ones, which no text has, are never drawn."""
    logits = logits.clone()
    logits[:4] = -torch.inf
    if temperature == 0:
        return int(logits.argmax())
    if top_k is not None:
        kth = logits.topk(min(top_k, len(logits) - 4)).values[-1]
        logits[logits < kth] = -torch.inf
    return int(torch.multinomial((logits / temperature).softmax(-1), 1, generator=draw))
