"""Checkpoints of Hugging Face transformers, opened as the runs of this library are."""

import inspect
import json
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from regard.attention.observer import any_edits, observers
from regard.data.tokenizer import piece_bytes, split_characters
from regard.system.extras import with_hint
from regard.tasks.predictor import Predictor, check_inputs, field
from regard.tasks.translation import likeliest
from regard.trace import Trace, capture
from regard.training.device import find_device

CONFIG, WEIGHTS, SHARDS = "config.json", "model.safetensors", "model.safetensors.index.json"
TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "spiece.model")
IMAGES = ("preprocessor_config.json", "processor_config.json")
UNSAFE = ("pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5", "flax_model.msgpack")
DOWNLOADED = ("*.json", "*.safetensors", "*.txt", "*.model")  # nothing that can run code
LONGEST_OUTPUT = 60  # tokens that an encoder–decoder writes by default
MOST_LABELS = 5  # classes of an answer

Kind = Literal["encoder", "causal", "encoder_decoder", "image"]


class Answer(NamedTuple):
    """What a pretrained model says about an input."""

    text: str  # the text it wrote, or its likeliest class; "" for an encoder without either
    tokens: Sequence[str] = ()  # that it wrote
    ids: Sequence[int] = ()  # of these
    probabilities: Mapping[str, float] = MappingProxyType({})  # of the likeliest classes


def is_checkpoint(folder: str | Path) -> bool:
    """Whether a folder holds a checkpoint of transformers, complete or not, and not a run."""
    path = Path(folder)
    return (path / CONFIG).is_file() and not (path / "config.toml").is_file()


def load_pretrained(
    folder: str | Path, *, device: str = "cpu", hub: bool = False
) -> "PretrainedPredictor":
    """Load a folder with a checkpoint of Hugging Face transformers.

    Weights are read from safetensors files alone, no code of the checkpoint is run, and nothing is
    downloaded, unless `hub` allows it.

        model = regard.load("models/all-MiniLM-L6-v2")
        model.trace("The animal didn't cross the street because it was too tired").page("it.html")

    Args:
        folder: with config.json, model.safetensors and the files of a tokenizer or image processor
        device: where the model is put, see `load`
        hub: whether `folder` may be the name of a model of the Hugging Face hub, to download

    Raises:
        FileNotFoundError: naming the file that is missing
        ImportError: if transformers is not installed
        ValueError: a model that transformers does not have, or one that reads neither text nor
            images, or a damaged file
    """
    try:
        import transformers
    except ModuleNotFoundError as error:
        raise with_hint("a Hugging Face model", error) from None
    path = Path(folder)
    if hub and not path.exists():
        path = _download(str(folder))
    kind = _model_class(path, transformers)
    _check_weights(path)
    local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    place = find_device(device)
    with _quiet(transformers), _reading(path):
        model, loading = kind.from_pretrained(
            path, use_safetensors=True, output_loading_info=True, **local
        )
        if kind.main_input_name == "pixel_values":
            _check_any(path, IMAGES, "image processor")
            reader = transformers.AutoImageProcessor.from_pretrained(path, **local)
        else:
            _check_any(path, TOKENIZERS, "tokenizer")
            reader = transformers.AutoTokenizer.from_pretrained(path, **local)
    if missing := sorted(loading["missing_keys"]):
        warnings.warn(
            f"{path} has no weights for {len(missing)} tensor(s) of {kind.__name__}, which are "
            f"random: {', '.join(missing[:3])}{', …' if len(missing) > 3 else ''}",
            stacklevel=2,
        )
    return PretrainedPredictor(model.to(place), reader)


class PretrainedPredictor(Predictor):
    """A model of Hugging Face transformers with its tokenizer, or image processor.

    An input is a text, or the path of an image.

    Args:
        model: a model of transformers that reads text or images
        tokenizer: of its text, or the processor of its images
    """

    task: ClassVar[str] = "pretrained"
    config = None

    def __init__(self, model: nn.Module, tokenizer: Any) -> None:
        self.model: Any = model.eval()
        self.tokenizer = tokenizer
        self.kind: Kind = kind_of(model)

    @classmethod
    def from_run(cls, directory: str | Path, device: str = "cpu") -> "PretrainedPredictor":
        """Load a folder with a checkpoint, see `load_pretrained`."""
        return load_pretrained(directory, device=device)

    @property
    def writes(self) -> bool:
        """Whether the model can write text."""
        return self.kind in ("causal", "encoder_decoder")

    @torch.no_grad()
    def predict(self, inputs: Sequence[str], *, length: int = LONGEST_OUTPUT) -> list[Answer]:
        """Return what the model says about each input.

        Args:
            inputs: texts, or paths of images
            length: how many tokens to write at most, for models that write
        """
        check_inputs(inputs, "images" if self.kind == "image" else "texts")
        return [self._answer(self.encode(one), length) for one in inputs]

    def trace(
        self,
        input: str,
        *,
        generate: int | None = None,
        prefix: Sequence[int] = (),
        written: Sequence[int] | None = None,
    ) -> Trace:
        """Return what the model attends to while it reads a text or image, and writes.

        What is written first is then read in one pass, so that each layer and head has one map,
        of the prompt and what follows it. Row t of a decoder's map shows what led to target token
        t; the decoder's own past is the side "prefix".

        Args:
            input: a text, or the path of an image
            generate: how many tokens to write at most; by default an encoder–decoder writes up to
                60, and a causal model none
            prefix: ids that what it writes begins with
            written: ids that the model is taken to have written, instead of its own

        Raises:
            ValueError: an input without tokens, or longer than the model reads; `generate` or
                `written` for a model that writes nothing
        """
        if (generate or prefix or written is not None) and not self.writes:
            name = type(self.model).__name__
            raise ValueError(f"{name} does not write: expected no generate, got {generate}")
        with torch.no_grad():
            inputs = self.encode(input)
            about = {"task": self.task, "kind": self.kind, "text": input}
            if self.kind == "image":
                return self._trace_image(inputs, about)
            if self.writes and written is None:
                default = LONGEST_OUTPUT if self.kind == "encoder_decoder" else 0
                written = self._write(inputs, default if generate is None else generate, prefix)
            if self.kind == "encoder_decoder":
                return self._trace_decoder(inputs, list(written or ()), about)
            return self._trace_text(inputs, list(written or ()), about)

    @torch.no_grad()
    def vector(self, input: str) -> Tensor:
        """Return the mean of the last layer's vectors of a text or image, (width,)."""
        output = self.model(**self.encode(input), output_hidden_states=True)
        return output.hidden_states[-1][0].float().flatten(0, -2).mean(0)

    def parse(self, record: str | Mapping[str, Any]) -> str:
        """Return a line as it is, or `text` (an image: `path`) of a JSON object."""
        names = ("path", "image") if self.kind == "image" else ("text", "source", "prompt")
        return record if isinstance(record, str) else field(record, *names)

    def to_text(self, prediction: Answer) -> str:
        """Return the text, or the likeliest class with its probability."""
        share = prediction.probabilities.get(prediction.text)
        return prediction.text if share is None else f"{prediction.text} ({share:.0%})"

    def to_json(self, prediction: Answer) -> Any:
        """Return the text, and the tokens that were written or the likeliest classes."""
        if self.writes:
            return {"text": prediction.text, "tokens": list(prediction.tokens)}
        return {"text": prediction.text, "probabilities": dict(prediction.probabilities)}

    def examples(self, count: int, split: str = "test") -> list[str]:
        """Raise `ValueError`: a checkpoint comes without data."""
        raise ValueError("a checkpoint has no data of its own")

    def encode(self, input: str) -> dict[str, Tensor]:
        """Return an input as the model takes it, a batch of one on the model's device.

        Raises:
            ValueError: a text without tokens or longer than the model reads; a file that is no
                image
        """
        if self.kind == "image":
            inputs = self.tokenizer(images=_open_image(input), return_tensors="pt")
        else:
            inputs = self.tokenizer(input, return_tensors="pt")
            count, most = inputs["input_ids"].shape[1], self.longest
            if not count:
                raise ValueError(f"there are no tokens in {input!r}: expected a text")
            if most is not None and count > most:
                raise ValueError(f"the text has {count:,} tokens; the model reads up to {most:,}")
        known = inspect.signature(self.model.forward).parameters  # some tokenizers return more
        return {name: inputs[name].to(self.device) for name in inputs if name in known}

    @property
    def longest(self) -> int | None:
        """How many tokens the model reads at most; None if it has no limit."""
        config = self.model.config
        sizes = [
            getattr(self.tokenizer, "model_max_length", None),
            getattr(config, "max_position_embeddings", None),
        ]
        known = [size for size in sizes if isinstance(size, int) and 0 < size < 10**9]
        return min(known, default=None)

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """One readable token for each id: ▁ begins a word, ## goes on with one.

        The bytes of byte-level BPE, and of SentencePiece's fallback, are put together: a character
        is in the piece it begins in, and one that begins inside a character is marked with ‥.
        `regard.analysis.by_words` joins the tokens of words.
        """
        pieces = self.tokenizer.convert_ids_to_tokens(list(ids))
        is_special = self.special(ids)
        is_bytes = "ByteLevel" in repr(getattr(self.tokenizer.backend_tokenizer, "decoder", None))
        raw = [
            b"" if special else _bytes(piece, is_bytes)
            for piece, special in zip(pieces, is_special, strict=True)
        ]
        return [
            piece if special else text
            for piece, special, text in zip(pieces, is_special, split_characters(raw), strict=True)
        ]

    def special(self, ids: Sequence[int]) -> list[bool]:
        """Whether each id is a special token, such as [CLS], which no text has."""
        known = set(self.tokenizer.all_special_ids)
        return [int(number) in known for number in ids]

    # ------------------------------------------------------------------------ one input

    def _answer(self, inputs: dict[str, Tensor], length: int) -> Answer:
        if self.writes:
            ids = self._write(inputs, length)
            before = inputs["input_ids"][0].tolist() if self.kind == "causal" else []
            text = self.tokenizer.decode([*before, *ids], skip_special_tokens=True)
            return Answer(text, self.tokens(ids), ids)
        return self._classified(self.model(**inputs))

    def _classified(self, output: Any) -> Answer:
        """The likeliest classes, of a model that has some."""
        logits, names = output.get("logits"), getattr(self.model.config, "id2label", {})
        if logits is None or logits.dim() != 2 or logits.shape[1] != len(names):
            return Answer("")
        values, indices = logits[0].float().softmax(-1).topk(min(MOST_LABELS, len(names)))
        shares = {
            names[index]: round(value, 5)
            for index, value in zip(indices.tolist(), values.tolist(), strict=True)
        }
        return Answer(next(iter(shares)), probabilities=shares)

    def _write(
        self, inputs: dict[str, Tensor], length: int, prefix: Sequence[int] = ()
    ) -> list[int]:
        """The ids that the model writes after its prompt, or for its source."""
        is_causal = self.kind == "causal"
        before = inputs["input_ids"][0].tolist() if is_causal else [self.first_id()]
        read = len(before) + len(prefix)
        count = length if self.longest is None else min(length, self.longest - read)
        if count < 1:
            return list(prefix)
        options: dict[str, Any] = {"max_new_tokens": count, "do_sample": False}
        if is_causal:
            options["num_beams"] = 1
        if prefix:
            ids = torch.tensor([[*before, *prefix]], device=self.device)
            inputs = {"input_ids": ids} if is_causal else {**inputs, "decoder_input_ids": ids}
        if any_edits(observers()):
            options["use_cache"] = False  # each pass reads everything: rows have their own numbers
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of sampling options that greedy search ignores
            written = self.model.generate(**inputs, **options)[0].tolist()
        return written[len(before) :]

    def _trace_text(
        self, inputs: dict[str, Tensor], written: list[int], about: dict[str, Any]
    ) -> Trace:
        source = inputs["input_ids"][0].tolist()
        if written:
            inputs = {"input_ids": torch.tensor([[*source, *written]], device=self.device)}
        with capture(self.model, inputs=True) as recorded:
            output = self.model(**inputs)
        ids = [*source, *written]
        title = self.to_text(self._classified(output))
        if self.kind == "causal":
            about |= self._scored(output.logits[0], ids)
            about |= {"prompt": len(source), "written": written}
            title = self.tokenizer.decode(ids, skip_special_tokens=True) if written else ""
        about |= {"title": title, "special": {"source": self.special(ids)}}
        trace = recorded.label(source=self.tokens(ids)).of(0)
        return Trace(trace.calls, trace.tokens, recorded.about | about, trace.missed)

    def _trace_decoder(
        self, inputs: dict[str, Tensor], target: list[int], about: dict[str, Any]
    ) -> Trace:
        if not target:
            raise ValueError(f"the model wrote nothing for {about['text']!r}: nothing to see")
        source = inputs["input_ids"][0].tolist()
        before = [self.first_id(), *target[:-1]]
        with capture(self.model, inputs=True) as recorded:
            output = self.model(
                **inputs, decoder_input_ids=torch.tensor([before], device=self.device)
            )
        tokens = {"source": source, "target": target, "prefix": before}
        trace = recorded.label(**{side: self.tokens(ids) for side, ids in tokens.items()}).of(0)
        calls = [
            replace(call, keys="prefix") if call.keys == "target" else call for call in trace.calls
        ]
        scores = output.logits[0].float().log_softmax(-1)  # (T, vocabulary)
        about |= {
            "title": self.tokenizer.decode(target, skip_special_tokens=True),
            "special": {side: self.special(ids) for side, ids in tokens.items()},
            "written": target,
            "outputs": {"target": likeliest(scores.exp(), self)},
            "log_probabilities": {
                "target": [round(s, 5) for s in scores[range(len(target)), target].tolist()]
            },
        }
        return Trace(calls, trace.tokens, recorded.about | about, trace.missed)

    def _trace_image(self, inputs: dict[str, Tensor], about: dict[str, Any]) -> Trace:
        with capture(self.model, inputs=True) as recorded:
            output = self.model(**inputs)
        about["title"] = self.to_text(self._classified(output))
        trace = recorded.of(0)
        height, width = inputs["pixel_values"].shape[-2:]
        sizes = {size for call in trace.calls for size in call.shape[-2:]}
        tokens = _patches(sizes, height, width, getattr(self.model.config, "patch_size", None))
        if tokens:
            trace.label(source=tokens)
        return Trace(trace.calls, trace.tokens, recorded.about | about, trace.missed)

    def _scored(self, logits: Tensor, ids: list[int]) -> dict[str, Any]:
        """The likeliest next token after each, and the log-probability of each but the first."""
        scores = logits.float().log_softmax(-1)  # (T, vocabulary)
        own = scores[range(len(ids) - 1), ids[1:]].tolist()
        return {
            "outputs": {"source": likeliest(scores.exp(), self)},
            "log_probabilities": {"source": [None, *(round(each, 5) for each in own)]},
        }

    def first_id(self) -> int:
        """The id that a decoder starts from."""
        for config in (self.model.generation_config, self.model.config):
            for name in ("decoder_start_token_id", "bos_token_id"):
                if (number := getattr(config, name, None)) is not None:
                    return int(number)
        raise ValueError(f"the configuration of {type(self.model).__name__} has no start token")


def kind_of(model: Any) -> Kind:
    """Whether a model of transformers reads text, writes on, writes for a source, or reads images.

    Raises:
        ValueError: for any other, such as one of speech
    """
    if model.main_input_name == "pixel_values" and not model.config.is_encoder_decoder:
        return "image"
    if model.main_input_name not in ("input_ids", "inputs_embeds"):
        raise ValueError(
            f"{type(model).__name__} reads {model.main_input_name}: expected a model of text or "
            "images; regard.capture records it in Python"
        )
    if model.config.is_encoder_decoder and model.can_generate():
        return "encoder_decoder"
    return "causal" if model.can_generate() else "encoder"


def _download(name: str) -> Path:
    """The folder of a model of the hub, fetched unless it is there already."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=list(DOWNLOADED)))
    except Exception as error:  # of names, rights, connections
        raise OSError(f"{name} cannot be downloaded from the hub: {error}") from error


def _model_class(path: Path, transformers: Any) -> Any:
    """The class that the configuration of a checkpoint names."""
    file = path / CONFIG
    if not file.is_file():
        reason = "does not exist" if not path.exists() else f"has no {CONFIG}"
        raise FileNotFoundError(
            f"{path} {reason}: expected a folder with a Hugging Face checkpoint"
        )
    try:
        config = json.loads(file.read_text("utf-8"))
        kind, names = str(config["model_type"]), config.get("architectures") or []
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise ValueError(f"{file} is no configuration of transformers: {error!r}") from error
    if kind not in transformers.CONFIG_MAPPING:
        own = " (the checkpoint has code of its own, which is not run)" * ("auto_map" in config)
        raise ValueError(
            f"{file}: transformers {transformers.__version__} has no model_type {kind!r}{own}"
        )
    found = getattr(transformers, str(names[0]), None) if names else transformers.AutoModel
    is_model = isinstance(found, type) and (
        found is transformers.AutoModel or issubclass(found, transformers.PreTrainedModel)
    )
    if not is_model:
        raise ValueError(f"{file}: transformers {transformers.__version__} has no {names[0]}")
    if found is transformers.AutoModel:
        config_class = transformers.CONFIG_MAPPING[kind]
        found = transformers.MODEL_MAPPING[config_class]
        found = found[0] if isinstance(found, tuple | list) else found
    return found


def _check_weights(path: Path) -> None:
    """Raise `FileNotFoundError` unless the weights are there, as safetensors."""
    index = path / SHARDS
    if (path / WEIGHTS).is_file():
        return
    if not index.is_file():
        unsafe = [name for name in UNSAFE if (path / name).exists()]
        reason = f"; {unsafe[0]} is not read, since loading it can run code" if unsafe else ""
        raise FileNotFoundError(f"{path} has no {WEIGHTS}{reason}")
    try:
        shards = sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{index} is damaged: {error!r}") from error
    for shard in shards:
        if not (path / str(shard)).is_file():
            raise FileNotFoundError(f"{path} has no {shard}, which {SHARDS} lists")


def _check_any(path: Path, names: Sequence[str], what: str) -> None:
    if not any((path / name).is_file() for name in names):
        raise FileNotFoundError(f"{path} has no {names[0]}: the {what} of the model is missing")


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Keep transformers from drawing progress bars and reports of what it loads."""
    logging = transformers.utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Name the checkpoint in whatever transformers raises about its files."""
    try:
        yield
    except (FileNotFoundError, ImportError):
        raise
    except Exception as error:  # parsers of other packages raise anything
        raise ValueError(f"{path} cannot be loaded: {type(error).__name__}: {error}") from error


def _open_image(path: str) -> Any:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except (UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise ValueError(f"{path} is not an image: {error}") from error


def _bytes(piece: str, is_bytes: bool) -> bytes:
    """The bytes of a piece of a tokenizer."""
    if number := re.fullmatch(r"<0x([0-9A-F]{2})>", piece):
        return bytes.fromhex(number[1])
    try:
        return piece_bytes(piece) if is_bytes else piece.encode("utf-8", "replace")
    except KeyError:  # a token that was added to the vocabulary as it is
        return piece.encode("utf-8", "replace")


def _patches(sizes: set[int], height: int, width: int, patch: Any) -> list[str]:
    """Names of the patches of an image, after those of other tokens; none if they do not fit."""
    sides = patch if isinstance(patch, tuple | list) else (patch, patch)
    if len(sizes) != 1 or not all(isinstance(side, int) and side > 0 for side in sides):
        return []
    rows, columns = height // sides[0], width // sides[1]
    (size,) = sizes
    extra = size - rows * columns
    if extra < 0:
        return []
    names = [f"[{number}]" for number in range(1, extra + 1)] if extra != 1 else ["[CLS]"]
    return names + [
        f"{row},{column}" for row in range(1, rows + 1) for column in range(1, columns + 1)
    ]
