"""The predictor of the task translate: a model, its tokenizers, and what they write."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, TypedDict, Unpack, overload

import numpy as np
from torch import Tensor, nn

from regard.data import Pairs, Tokenizer, load_tokenizer
from regard.data.tokenizer import VocabularyTokenizer
from regard.decoding import Hypothesis, Limits, OnStep, batched, greedy, sample
from regard.decoding import beam as beam_search
from regard.evaluation import consensus
from regard.export import CTranslate2Model
from regard.tasks.parallel_corpus import Data, Splits, read_files
from regard.tasks.predictor import Predictor, check_inputs, check_traceable, field
from regard.tasks.run import load_model
from regard.tasks.search import search_options
from regard.tasks.translation import Translation, trace_translation
from regard.tasks.variants import build_model
from regard.trace import Trace
from regard.training import Config
from regard.training.checkpoint import checkpoints, read_weights
from regard.training.run_directory import read_run_config
from regard.training.weights import put_weights

SOURCE, TARGET = "tokenizer.source.json", "tokenizer.target.json"


class Options(TypedDict, total=False):
    """The options of `Translator.translate`, which documents them."""

    beam: int | None
    return_map: bool
    penalty: float | None
    sampling: Mapping[str, Any] | None
    mbr: int | None
    prefix: Sequence[str] | None
    limits: Limits | None
    copy_unknown: bool
    first: int
    on_step: OnStep | None


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
        beam: int | None = None,
        n_best: int = 1,
        return_map: bool = False,
        penalty: float | None = None,
        sampling: Mapping[str, Any] | None = None,
        mbr: int | None = None,
        prefix: Sequence[str] | None = None,
        limits: Limits | None = None,
        copy_unknown: bool = False,
        first: int = 0,
        on_step: OnStep | None = None,
    ) -> list[Any]:
        """Translate texts, or float frames (length, width); an empty or blank one becomes empty.

        Args:
            inputs: texts or frames
            beam: beam size, by default 5; 1 is greedy search
            n_best: translations of each input, at most `beam`; with `sampling`, samples of each
            return_map: whether to return what was attended to
            penalty: length penalty of the beam, by default 0.6, see `regard.decoding.beam`
            sampling: sample translations, with options of `regard.decoding.sample`: temperature,
                top_k, top_p, seed
            mbr: draw this many samples and return the one that is most like the others, by chrF:
                minimum Bayes risk. Eikema & Aziz 2020; with a temperature of 0.7 unless `sampling`
                has another
            prefix: what each translation must begin with
            limits: how long they may become
            copy_unknown: write for an unknown token the source token with the largest weight.
                Luong et al. 2015b; otherwise it is written as U+FFFD
            first: number of the first input, on which samples depend
            on_step: called after each step with the sentences of a batch and their new tokens;
                it may raise

        Returns: one `Translation` for each, or, with n_best > 1, a list of them for each
        """
        check_inputs(inputs, "texts")
        how = search_options(
            beam=beam, n_best=n_best, penalty=penalty, sampling=sampling, mbr=mbr, limits=limits
        )
        if prefix is not None and (isinstance(prefix, str) or len(prefix) != len(inputs)):
            raise ValueError(
                f"prefix should be a list of {len(inputs)}, one for each text, got {prefix!r}"
            )
        sides = (self.source, self.target)
        if copy_unknown and not all(isinstance(t, VocabularyTokenizer) for t in sides):
            raise ValueError("copy_unknown needs tokenizers of characters, words or phonemes")
        sources = [self._encode(text) for text in inputs]
        options: dict[str, Any] = {
            "return_map": return_map or copy_unknown,
            "limits": how.limits,
            "on_step": on_step,
        }
        if prefix is not None:
            options["prefix"] = [self.target.encode(text) for text in prefix]
        if how.samples:
            if isinstance(self.model, CTranslate2Model):
                raise ValueError("samples of CTranslate2 have no seed: sample with the run itself")
            each = how.mbr or how.n_best
            found = _samples(self.model, sources, each, first, {**options, **how.drawing})
            if how.mbr is not None:
                found = [[self._most_agreed(samples)] for samples in found]
        else:
            ranking = {"n_best": how.n_best, "penalty": how.penalty}
            found = self._search(sources, how.beam, options, **ranking)
        if not all(best and np.isfinite(best[0].score) for best in found):
            raise ValueError(
                "the scores of the model are not finite: its weights hold NaN or infinity, as "
                "after a training that diverged"
            )
        written = [
            [self._translation(text, source, one, copy_unknown, return_map) for one in best]
            for text, source, best in zip(inputs, sources, found, strict=True)
        ]
        return written if how.n_best > 1 else [best[0] for best in written]

    def search(
        self,
        inputs: Sequence[Any],
        *,
        beam: int | None = None,
        n_best: int = 1,
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> list[list[Hypothesis]]:
        """Return the best hypotheses for each text or frames; `trace` takes any of them.

        Args:
            inputs: texts or frames
            beam: beam size, by default 5; 1 is greedy search
            n_best: hypotheses of each input, at most `beam`; there may be fewer
            prefixes: ids of target tokens that the hypotheses of each input begin with
        """
        sources = [self._encode(text) for text in inputs]
        how = search_options(beam=beam, n_best=n_best)
        options: dict[str, Any] = {} if prefixes is None else {"prefix": prefixes}
        return self._search(sources, how.beam, options, n_best=n_best, penalty=how.penalty)

    def _search(
        self, sources: list[Any], beam: int, options: dict[str, Any], **ranking: Any
    ) -> list[list[Hypothesis]]:
        if isinstance(self.model, CTranslate2Model):
            return self.model.search(sources, beam=beam, **ranking, **options)
        if beam == 1:
            return [[best] for best in batched(greedy, self.model, sources, **options)]
        search = partial(beam_search, size=beam, **ranking)
        return batched(search, self.model, sources, **options)

    def trace(
        self, input: Any, *, beam: int | None = None, written: Hypothesis | None = None
    ) -> Trace:
        """Translate one text, then run the model on its own translation and record all attention.

        Row t of a decoder's map shows what led to target token t. The decoder's own past is the
        side "prefix". `about["outputs"]["target"]` holds the likeliest next tokens of each row:
        token, probability and id; `about["log_probabilities"]["target"]` those of the tokens.

        Args:
            input: a text, or float frames (length, width)
            beam: beam size, by default 5
            written: what to run the model on instead of its own translation

        Raises:
            ValueError: a text without any token
        """
        check_traceable(self.model)
        source = self._encode(input)
        if len(source) == 0:
            raise ValueError(f"there is nothing to see in an empty text, got {input!r}")
        best = self.search([input], beam=beam)[0][0] if written is None else written
        if not best.tokens:
            raise ValueError(f"the model wrote nothing for {input!r}, so there is nothing to see")
        found = self._translation(input, source, best, False, False)
        text = input if isinstance(input, str) else ""
        return trace_translation(self.model, self.target, source, best.tokens, found, text)

    def trace_checkpoints(
        self, run: str | Path, input: Any, *, beam: int | None = None
    ) -> dict[str, Trace]:
        """Trace how an alignment was learned: the final translation, at each checkpoint of a run.

        Args:
            run: the run directory of this model, whose weights are restored afterwards
            input: a text or frames
            beam: beam size, by default 5

        Returns: a trace for each checkpoint by its step, in order, and the final one

        Raises:
            FileNotFoundError: a run without checkpoints
        """
        folders = checkpoints(Path(run))
        if not folders:
            raise FileNotFoundError(f"there are no checkpoints in {run}")
        own = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        best = self.search([input], beam=beam)[0][0]
        traces = {}
        try:
            for step, folder in folders.items():
                put_weights(self.model, read_weights(folder), source=str(folder))
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

    def read(self, files: Sequence[str | Path], **settings: Any) -> Pairs:
        """Read a file of pairs, or two aligned ones, by default with the columns of the run."""
        data = self.file_settings(Data, files[0], settings)
        names = [str(file) for file in files]
        return read_files(data, "test", names[0] if len(names) == 1 else names)

    def evaluate(self, path: str | Path, **settings: Any) -> dict[str, float]:
        """Return the metrics of `evaluate_translator` of the pairs of a file."""
        from regard.evaluation import evaluate_translator

        own: Any = self
        report = evaluate_translator(own, self.read([path], **settings))
        return {name: metric.value for name, metric in report.metrics.items()}

    def _encode(self, text: Any) -> Any:
        if self.source is None:
            frames = np.asarray(text, np.float32)
            if frames.ndim != 2:
                raise ValueError(f"frames should be (length, width), got shape {frames.shape}")
            return frames
        if not isinstance(text, str):
            raise TypeError(f"this model reads texts, got {type(text).__name__}")
        return [] if text.isspace() else self.source.encode(text)

    def _translation(
        self, given: Any, source: Any, best: Hypothesis, copy_unknown: bool, return_map: bool
    ) -> Translation:
        read = [""] * len(source) if self.source is None else self.source.tokens(source)
        map = None if best.maps is None else best.alignment(len(source))
        text = self.target.decode(best.tokens)
        if copy_unknown and map is not None and self.target.unk in best.tokens:
            text = self._copied(given, best.tokens, map)
        kept = (map, best.maps) if return_map else (None, None)
        tokens = self.target.tokens(best.tokens)
        return Translation(text, tokens, best.score, kept[0], read, kept[1])

    def _most_agreed(self, samples: list[Hypothesis]) -> Hypothesis:
        """The sample whose text is most like those of the others."""
        return samples[consensus([self.target.decode(sample.tokens) for sample in samples])]

    def _copied(self, source: Any, ids: Sequence[int], map: Tensor) -> str:
        """The text with each unknown token replaced by the source token of the largest weight."""
        assert isinstance(self.source, VocabularyTokenizer)
        assert isinstance(self.target, VocabularyTokenizer)
        pieces = self.source.split(source)
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
