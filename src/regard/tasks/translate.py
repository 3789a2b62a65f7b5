"""Translation and related tasks: a source sequence becomes a target sequence."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from html import escape
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypedDict, Unpack, overload

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from regard.data import (
    DATASETS,
    GENERATED,
    Batch,
    Batches,
    Encoded,
    Pairs,
    Tokenizer,
    collate,
    encode_pairs,
    fingerprint,
    load_tokenizer,
    train_tokenizer,
    train_tokenizers,
)
from regard.data.tokenizer_vocabulary import VocabularyTokenizer
from regard.decoding import Hypothesis, Limits, batched, greedy, sample
from regard.decoding import beam as beam_search
from regard.models import build
from regard.tasks.classification import table
from regard.tasks.parallel_corpus import Data, Picked, Splits
from regard.tasks.predictor import Predictor, check_inputs, field
from regard.tasks.run import load_model
from regard.trace import Trace, capture
from regard.training import Config, Loss, Settings, read_settings, stored_file, vocabulary_loss
from regard.training.run_directory import read_run_config
from regard.training.weights import put_weights, read_tensors
from regard.visual.notebook import matrix_html

SOURCE, TARGET = "tokenizer.source.json", "tokenizer.target.json"
EXAMPLES = 3  # that `describe` shows
ROWS = 512  # target tokens that are evaluated at a time
LONGEST_REPR = 60  # letters of a translation that its repr shows
LIKELIEST = 5  # next tokens that a trace keeps for each position


class LossSettings(Settings):
    """The table `[loss]`."""

    label_smoothing: float = Field(
        0.0, ge=0, lt=1, description="share of a target's probability that goes to all tokens"
    )


# ------------------------------------------------------------------------------ predictor


class Translation(NamedTuple):
    """What was written for a source."""

    text: str
    tokens: list[str]  # of the text, with the end-of-sequence token
    score: float  # log-probability, with the end-of-sequence token
    map: Tensor | None  # (tokens, source); None unless return_map
    source: list[str]  # the source tokens
    maps: dict[str, Tensor] | None  # by module, (heads, tokens, source) each

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= LONGEST_REPR else self.text[:LONGEST_REPR] + "…"
        shape = "" if self.map is None else f", map={tuple(self.map.shape)}"
        return f"Translation({text!r}, score={self.score:.3f}{shape})"

    def _repr_html_(self) -> str:
        """The text, and the map where it was kept, for notebooks."""
        title = f"{self.text} ({self.score:.3f})"
        if self.map is None:
            return f"<p>{escape(title)}</p>"
        return matrix_html(self.map, self.tokens, self.source, title)


class Options(TypedDict, total=False):
    """The options of `Translator.translate`, which documents them."""

    beam: int
    return_map: bool
    penalty: float
    sampling: Mapping[str, Any] | None
    prefix: Sequence[str] | None
    limits: Limits
    copy_unknown: bool
    first: int


class Translator(Predictor):
    """A model that writes a target sequence, and its tokenizers: a run of the task translate.

    >>> from regard.data import train_tokenizer
    >>> letters = train_tokenizer("characters", ["abc"])
    >>> model = build_model({"kind": "luong", "preset": "tiny"}, letters, letters)
    >>> translator = Translator(model, letters, letters)
    >>> (first,) = translator.translate(["cab"], return_map=True)
    >>> first.map.shape == (len(first.tokens), 3)
    True

    Args:
        model: a trained encoder-decoder of `regard.models`
        source: tokenizer of the source; None if sources are float frames
        target: tokenizer of the target
        config: of the run
    """

    task: ClassVar[str] = "translate"

    def __init__(
        self,
        model: nn.Module,
        source: Tokenizer | None,
        target: Tokenizer,
        config: Config | None = None,
    ) -> None:
        self.model: Any = model.eval()
        self.source, self.target = source, target
        self.config = config

    @classmethod
    def from_run(cls, directory: str | Path, device: str = "cpu") -> "Translator":
        """Load a run directory of the task translate."""
        run = Path(directory)
        config = read_run_config(run)
        target = load_tokenizer(run / TARGET)
        source = load_tokenizer(run / SOURCE) if (run / SOURCE).is_file() else None
        model = load_model(partial(build_model, config.model, source, target), run, device)
        return cls(model, source, target, config)

    @overload
    def translate(  # type: ignore[overload-overlap]  # 1 is also an int
        self, texts: Sequence[Any], *, n_best: Literal[1] = ..., **options: Unpack[Options]
    ) -> list[Translation]: ...

    @overload
    def translate(
        self, texts: Sequence[Any], *, n_best: int, **options: Unpack[Options]
    ) -> list[list[Translation]]: ...

    def translate(
        self, texts: Sequence[Any], *, n_best: int = 1, **options: Unpack[Options]
    ) -> list[Any]:
        """Translate texts; see `predict`, which has the same options."""
        return self.predict(texts, n_best=n_best, **options)

    def predict(
        self,
        inputs: Sequence[Any],
        *,
        beam: int = 1,
        n_best: int = 1,
        return_map: bool = False,
        penalty: float = 0.6,
        sampling: Mapping[str, Any] | None = None,
        prefix: Sequence[str] | None = None,
        limits: Limits = Limits(),  # noqa: B008
        copy_unknown: bool = False,
        first: int = 0,
    ) -> list[Any]:
        """Translate texts, or float frames (length, width); an empty or blank one becomes empty.

        Args:
            inputs: texts or frames
            beam: beam size; 1 is greedy search
            n_best: translations of each input, at most `beam`; with `sampling`, samples of each
            return_map: whether to return what was attended to
            penalty: length penalty of the beam, see `regard.decoding.beam`
            sampling: sample translations, with options of `regard.decoding.sample`: temperature,
                top_k, top_p, seed
            prefix: what each translation must begin with
            limits: how long they may become
            copy_unknown: write for an unknown token the source token with the largest weight.
                Luong et al. 2015b; otherwise it is written as U+FFFD
            first: number of the first input, on which samples depend

        Returns: one `Translation` for each, or, with n_best > 1, a list of them for each
        """
        check_inputs(inputs, "texts")
        if sampling is None and not 1 <= n_best <= beam:
            raise ValueError(f"n_best should be from 1 to beam={beam}, got {n_best}")
        if sampling is not None and (beam > 1 or n_best < 1):
            raise ValueError(f"sampling needs beam=1 and n_best ≥ 1, got {beam} and {n_best}")
        if prefix is not None and (isinstance(prefix, str) or len(prefix) != len(inputs)):
            raise ValueError(
                f"prefix should be a list of {len(inputs)}, one for each text, got {prefix!r}"
            )
        sides = (self.source, self.target)
        if copy_unknown and not all(isinstance(t, VocabularyTokenizer) for t in sides):
            raise ValueError("copy_unknown needs tokenizers of characters, words or phonemes")
        sources = [self._encode(text) for text in inputs]
        options: dict[str, Any] = {"return_map": return_map or copy_unknown, "limits": limits}
        if prefix is not None:
            options["prefix"] = [self.target.encode(text) for text in prefix]
        if sampling is not None:
            found = _samples(self.model, sources, n_best, first, {**options, **sampling})
        elif beam > 1:
            search = partial(beam_search, size=beam, n_best=n_best, penalty=penalty)
            found = batched(search, self.model, sources, **options)
        else:
            found = [[best] for best in batched(greedy, self.model, sources, **options)]
        if not all(best and np.isfinite(best[0].score) for best in found):
            raise ValueError(
                "the scores of the model are not finite: its weights hold NaN or infinity, as "
                "after a training that diverged"
            )
        written = [
            [self._translation(text, source, one, copy_unknown, return_map) for one in best]
            for text, source, best in zip(inputs, sources, found, strict=True)
        ]
        return written if n_best > 1 else [best[0] for best in written]

    @torch.no_grad()
    def trace(self, input: Any, *, beam: int = 1, written: Hypothesis | None = None) -> Trace:
        """Translate one text, then run the model on its own translation and record all attention.

        Row t of a decoder's map shows what led to target token t. The decoder's own past is the
        side "prefix". `about["outputs"]["target"]` holds the likeliest next tokens of each row.

        Args:
            input: a text, or float frames (length, width)
            beam: beam size
            written: what to run the model on instead of its own translation

        Raises:
            ValueError: a text without any token
        """
        source = self._encode(input)
        if len(source) == 0:
            raise ValueError(f"there is nothing to see in an empty text, got {input!r}")
        best = self._best(source, beam) if written is None else written
        if not best.tokens:
            raise ValueError(f"the model wrote nothing for {input!r}, so there is nothing to see")
        found = self._translation(input, source, best, False, False)
        batch = collate([(source, ())])
        model, tokenizer = self.model, self.target
        device = model.output.weight.device
        before = torch.tensor([[tokenizer.bos, *best.tokens[:-1]]], device=device)  # (1, T)
        with warnings.catch_warnings(), capture(model) as recorded:
            warnings.filterwarnings("ignore", "capture recorded nothing")  # without attention
            memory = model.encode(batch.source.to(device), batch.source_lengths.to(device))
            features = model.decode(memory, before)  # (1, T, D)
        shares = model.output(features)[0].softmax(-1)  # (T, vocabulary)
        tokens = {
            "source": found.source if any(found.source) else [str(i) for i in range(len(source))],
            "target": found.tokens,
            "prefix": tokenizer.tokens(before[0].tolist()),
        }
        calls = [
            replace(call, keys="prefix") if call.keys == "target" else call
            for call in recorded.label(**tokens).stitched().of(0).calls
        ]
        about = {
            **recorded.about,
            "task": self.task,
            "text": input if isinstance(input, str) else "",
            "translation": found.text,
            "outputs": {"target": _likeliest(shares, tokenizer)},
        }
        return Trace(calls, tokens, about)

    def trace_checkpoints(self, run: str | Path, input: Any, *, beam: int = 1) -> dict[str, Trace]:
        """Trace how an alignment was learned: the final translation, at each checkpoint of a run.

        Args:
            run: the run directory of this model, whose weights are restored afterwards
            input: a text or frames
            beam: beam size

        Returns: a trace for each checkpoint by its step, in order, and the final one

        Raises:
            FileNotFoundError: a run without checkpoints
        """
        folder = Path(run) / "checkpoints"
        files = {int(f.parent.name[5:]): f for f in folder.glob("step-*/model.safetensors")}
        if not files:
            raise FileNotFoundError(f"there are no checkpoints in {folder}")
        own = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        best = self._best(self._encode(input), beam)
        traces = {}
        try:
            for step, file in sorted(files.items()):
                put_weights(self.model, read_tensors(file), source=str(file))
                traces[f"step {step}"] = self.trace(input, written=best)
        finally:
            self.model.load_state_dict(own)
        return {**traces, "final": self.trace(input, written=best)}

    def parse(self, record: str | Mapping[str, Any]) -> Any:
        """Return a line as it is, or `source` (or `text`) of a JSON object; frames are a list."""
        if self.source is None:
            if isinstance(record, str):
                raise ValueError("this model reads float frames: give JSON with a key 'source'")
            return np.asarray(field(record, "source", kind=list), np.float32)
        return record if isinstance(record, str) else field(record, "source", "text")

    def to_text(self, prediction: Translation | list[Translation]) -> str:
        """Return the translation on one line; of several, a line of score, tab and text each."""
        if isinstance(prediction, list):
            return "\n".join(f"{one.score:.4f}\t{self.to_text(one)}" for one in prediction)
        return " ".join(prediction.text.splitlines())

    def to_json(self, prediction: Translation | list[Translation]) -> Any:
        """Return text, score and tokens; of several translations, a list of them."""
        if isinstance(prediction, list):
            return [self.to_json(one) for one in prediction]
        return {"text": prediction.text, "score": prediction.score, "tokens": prediction.tokens}

    def examples(self, count: int, split: str = "test") -> list[Any]:
        """Return sources of a split of the run's data."""
        return list(self.pairs(split)[:count].sources)

    def pairs(self, split: str = "test") -> Pairs:
        """Return a split of the run's own data; nothing is written, whatever `[data] store` is."""
        return Splits(self.data_settings(Data), self.seed).read(split)

    def _encode(self, text: Any) -> Any:
        if self.source is None:
            frames = np.asarray(text, np.float32)
            if frames.ndim != 2:
                raise ValueError(f"frames should be (length, width), got shape {frames.shape}")
            return frames
        if not isinstance(text, str):
            raise TypeError(f"this model reads texts, got {type(text).__name__}")
        return [] if text.isspace() else self.source.encode(text)

    def _best(self, source: Any, beam: int) -> Hypothesis:
        if beam == 1:
            return batched(greedy, self.model, [source])[0]
        return batched(partial(beam_search, size=beam, n_best=1), self.model, [source])[0][0]

    def _translation(
        self, given: Any, source: Any, best: Hypothesis, copy_unknown: bool, return_map: bool
    ) -> Translation:
        read = [""] * len(source) if self.source is None else self.source.tokens(source)
        map = None if best.maps is None else alignment(best, len(source))
        text = self.target.decode(best.tokens)
        if copy_unknown and map is not None and self.target.unk in best.tokens:
            text = self._copied(given, best.tokens, map)
        kept = (map, best.maps) if return_map else (None, None)
        tokens = self.target.tokens(best.tokens)
        return Translation(text, tokens, best.score, kept[0], read, kept[1])

    def _copied(self, given: Any, ids: Sequence[int], map: Tensor) -> str:
        """The text with each unknown token replaced by the source token of the largest weight."""
        assert isinstance(self.source, VocabularyTokenizer)
        assert isinstance(self.target, VocabularyTokenizer)
        pieces = self.source.split(given)
        return self.target.join(
            [
                pieces[int(row.argmax())] if number == self.target.unk else piece
                for number, piece, row in zip(ids, self.target.decode_pieces(ids), map, strict=True)
            ]
        )


def _samples(
    model: Any, sources: list[Any], each: int, first: int, options: dict[str, Any]
) -> list[list[Hypothesis]]:
    """So many samples of each source; they depend on its number, and not on the others."""
    many = [source for source in sources for _ in range(each)]
    if "prefix" in options:
        options["prefix"] = [prefix for prefix in options["prefix"] for _ in range(each)]
    numbers = range(first * each, first * each + len(many))
    found = batched(sample, model, many, numbers=numbers, **options)
    return [found[start : start + each] for start in range(0, len(found), each)]


def _likeliest(shares: Tensor, tokenizer: Tokenizer) -> list[list[list[Any]]]:
    values, indices = shares.topk(min(LIKELIEST, shares.shape[-1]))
    return [
        [[token, round(share, 5)] for token, share in zip(tokenizer.tokens(ids), row, strict=True)]
        for ids, row in zip(indices.tolist(), values.tolist(), strict=True)
    ]


def alignment(best: Hypothesis, source: int) -> Tensor:
    """Return one map (tokens, source): the mean over all heads that attend to the source.

    A model without attention has a map of zeros.
    """
    if not best.maps:
        return torch.zeros(len(best.tokens), source)
    return torch.cat(list(best.maps.values())).mean(0)


def build_model(table: Mapping[str, Any], source: Tokenizer | None, target: Tokenizer) -> nn.Module:
    """Build the model of a table `[model]` for these tokenizers."""
    options = dict(table)
    kind, preset = options.pop("kind", "luong"), options.pop("preset", None)
    if kind == "language":
        raise ValueError("model.kind: a language model reads no source; choose another kind")
    if source is None and "frames" not in options:
        raise ValueError("model.frames is missing: sources are float frames, give their width")
    vocabulary = None if source is None else len(source)
    try:
        return build(
            kind, preset, source_vocabulary=vocabulary, target_vocabulary=len(target), **options
        )
    except ValueError as error:  # "hidden of luong should be ..."
        named = str(error).split(" ", 1)[0] in options
        raise ValueError(f"model.{error}" if named else f"[model] {error}") from error


# ------------------------------------------------------------------------------ task


class TranslateTask:
    """Parallel data: tokenizers, batches by length, a model of `build`, greedy decoding.

    Args:
        data: the pairs
        model: `kind`, `preset` and options of `regard.models.build`
        loss: how it is trained
        seed: of the order of batches, and of generated data
        run: a run directory whose tokenizers are used, instead of new ones
    """

    predictor = Translator
    tables = (("data", Data), ("loss", LossSettings))
    unit = "tokens"

    def __init__(
        self,
        data: Data,
        model: Mapping[str, Any],
        loss: LossSettings,
        seed: int = 1,
        run: Path | None = None,
    ) -> None:
        self.data, self.loss_settings, self.seed = data, loss, seed
        self.model = dict(model)
        self.splits = Splits(data, seed)
        self.train, self.valid = self.splits.read("train"), self.splits.read("valid")
        self.source_tokenizer, self.target_tokenizer = self._tokenizers(run)
        self.corpus = self._encoded("train", self.train)
        self.valid_corpus = self._encoded("valid", self.valid)
        self.kept = self._short_enough(self.corpus, "train on")
        valid = self._short_enough(self.valid_corpus, "validate with")
        self.valid_left_out = len(self.valid) - len(valid)
        if self.valid_left_out:
            sources, targets = Picked(self.valid.sources, valid), Picked(self.valid.targets, valid)
            self.valid = Pairs(sources, targets, self.valid.report)
            self.valid_corpus = self._encoded("valid", self.valid)
        batches = Batches(
            self.corpus.lengths[self.kept], **self._batch_size(), seed=seed, shuffle=True
        )
        self._order = lru_cache(maxsize=1)(batches.order)
        words = self.target_tokenizer.kind in ("words", "bpe")
        self.metric: str = data.metric or ("bleu" if words else "exact")
        self.larger_is_better = self.metric != "loss"

    @classmethod
    def from_config(cls, config: Config, run: Path | None = None) -> "TranslateTask":
        """Make the task of a configuration; with `run`, with the tokenizers of that run."""
        data = read_settings(Data, config.data, "data")
        loss = read_settings(LossSettings, config.loss, "loss")
        return cls(data, config.model, loss, config.seed, run)

    def build(self) -> nn.Module:
        """Build a fresh model for these vocabularies."""
        return build_model(self.model, self.source_tokenizer, self.target_tokenizer)

    def steps(self, epoch: int) -> int:
        """Return how many batches the epoch has."""
        return len(self._order(epoch))

    def batch(self, epoch: int, step: int) -> Batch:
        """Return one batch of the epoch."""
        return self.corpus.batch(self.kept[self._order(epoch)[step]].tolist())

    def loss(self, model: Any, batch: Batch) -> Loss:
        """Return the cross entropy of the target tokens, summed."""
        features, tokens = target_features(model, batch)
        output: nn.Linear = model.output
        smoothing = self.loss_settings.label_smoothing
        total = vocabulary_loss(
            features, output.weight, output.bias, tokens, label_smoothing=smoothing
        )
        return Loss(total, len(tokens))

    @torch.no_grad()
    def evaluate(self, model: Any) -> dict[str, float]:
        """Return loss and accuracy of tokens given those before; decoded, exact match and BLEU."""
        loss, correct, count = 0.0, 0, 0
        written: dict[int, str] = {}
        for batch in self.evaluation_batches():
            features, tokens = target_features(model, batch)
            for rows, wanted in zip(features.split(ROWS), tokens.split(ROWS), strict=True):
                logits = model.output(rows)
                loss += float(F.cross_entropy(logits, wanted, reduction="sum"))
                correct += int((logits.argmax(-1) == wanted).sum())
            count += len(tokens)
            found = greedy(model, batch.source, batch.source_lengths)
            for index, best in zip(batch.index.tolist(), found, strict=True):
                written[index] = self.target_tokenizer.decode(best.tokens)
        texts = [written[index] for index in range(len(self.valid))]
        metrics = {"loss": loss / count, "accuracy": correct / count, "exact": self._exact(texts)}
        if self.metric == "bleu":
            import sacrebleu

            metrics["bleu"] = sacrebleu.corpus_bleu(texts, [list(self.valid.targets)]).score
        return metrics

    def write(self, run: Path) -> None:
        """Store the tokenizers; frames need none."""
        if self.source_tokenizer is not None:
            self.source_tokenizer.save(run / SOURCE)
        self.target_tokenizer.save(run / TARGET)

    def fingerprint(self) -> dict[str, str]:
        """Return fingerprints of the data."""
        return {"train": fingerprint(self.train), "valid": fingerprint(self.valid)}

    def describe(self) -> str:
        """Return statistics of the data as a table."""
        lengths = self.corpus.lengths[self.kept]
        source, target, count = self.source_tokenizer, self.target_tokenizer, self.steps(0)
        rows = {
            "training pairs": f"{len(self.kept):,}"
            + self._left_out(len(self.corpus) - len(self.kept)),
            "validation pairs": f"{len(self.valid):,}{self._left_out(self.valid_left_out)}",
            "test pairs": self._count_test(),
            "source": "float frames" if source is None else f"{source.kind}, {len(source):,} kinds",
            "target": f"{target.kind}, {len(target):,} kinds",
            "source tokens": _spread(lengths[:, 0]),
            "target tokens": _spread(lengths[:, 1] - 2),
            "batches an epoch": f"{count:,} of {len(self.kept) / count:.0f} pairs",
        }
        if self.train.report.count:
            rows["bad lines"] = str(self.train.report)
        for number, (text, written) in enumerate(self.train[:EXAMPLES], start=1):
            shown = f"{len(text)} frames" if not isinstance(text, str) else text
            rows[f"example {number}"] = f"{shown} → {written}"
        return table(rows)

    def evaluation_batches(self) -> Iterator[Batch]:
        """The validation pairs by length; batches are larger, since no gradient is kept."""
        size = {key: 4 * number for key, number in self._batch_size().items()}
        if "tokens" in size:
            size["tokens"] = max(size["tokens"], int(self.valid_corpus.lengths.sum(1).max()))
        order = Batches(self.valid_corpus.lengths, **size, shuffle=False).order(0)
        return (self.valid_corpus.batch(order[step]) for step in range(len(order)))

    @cached_property
    def _answers(self) -> dict[Any, set[str]]:
        """All targets of a source: a word may have several pronunciations."""
        answers: dict[Any, set[str]] = {}
        for number, (source, target) in enumerate(self.valid):
            answers.setdefault(source if isinstance(source, str) else number, set()).add(target)
        return answers

    def _exact(self, texts: list[str]) -> float:
        """The share of distinct sources that were written as one of their targets."""
        sources = range(len(texts)) if self.source_tokenizer is None else self.valid.sources
        found = dict(zip(sources, texts, strict=True))
        return float(np.mean([text in self._answers[source] for source, text in found.items()]))

    def _batch_size(self) -> dict[str, int]:
        if self.data.sentences is not None:
            return {"sentences": self.data.sentences}
        return {"tokens": self.data.tokens or 4096}

    def _tokenizers(self, run: Path | None) -> tuple[Tokenizer | None, Tokenizer]:
        data, frames = self.data, not isinstance(self.train.sources[0], str)
        source_file, target_file = stored_file(run, SOURCE), stored_file(run, TARGET)
        if source_file is not None and target_file is not None:
            return None if frames else load_tokenizer(source_file), load_tokenizer(target_file)
        known: dict[str, Any] = {**GENERATED, **DATASETS}
        own = known[data.name] if data.name else None
        source = data.source_tokenizer or (own.source if own else None) or "characters"
        target = data.target_tokenizer or (own.target if own else "characters")
        size: dict[str, Any] = {"size": data.vocabulary, "min_count": data.min_count}
        if frames:
            if data.joint or data.source_tokenizer:
                raise ValueError("[data] sources are frames: they have no tokenizer to choose")
            return None, train_tokenizer(target, self.train.targets, **size)
        return train_tokenizers(self.train, source, target, joint=data.joint, **size)

    def _encoded(self, split: str, pairs: Pairs) -> Encoded:
        store = None if self.data.store is None else Path(self.data.store) / split
        return encode_pairs(pairs, self.source_tokenizer, self.target_tokenizer, store=store)

    def _count_test(self) -> str:
        data = self.data
        if data.train is not None and (data.valid is None) != (data.test is None):
            return "the validation pairs"
        return f"{len(self.splits.read('test')):,}"

    def _left_out(self, count: int) -> str:
        return f"; {count:,} longer than {self.data.longest} left out" if count else ""

    def _short_enough(self, corpus: Encoded, purpose: str) -> np.ndarray:
        """The positions of pairs that are not longer than `longest`, (n,)."""
        lengths = corpus.lengths - np.array([0, 2])
        longest = self.data.longest
        kept = np.arange(len(lengths))
        if longest is not None:
            kept = (lengths.max(axis=1) <= longest).nonzero()[0]
            if not len(kept):
                raise ValueError(f"[data] longest={longest} leaves no pair to {purpose}")
        return kept


def target_features(model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return features (n, D) of the n target tokens that are not padding, and the tokens (n,)."""
    given, wanted = batch.target[:, :-1], batch.target[:, 1:]
    features = model(batch.source, batch.source_lengths, given)  # (B, T - 1, D)
    position = torch.arange(given.shape[1])
    real = position < (batch.target_lengths - 1).unsqueeze(1)
    return features[real], wanted[real]


def _spread(lengths: np.ndarray) -> str:
    return f"{lengths.sum():,}; {lengths.mean():.1f} on average, at most {lengths.max()}"
