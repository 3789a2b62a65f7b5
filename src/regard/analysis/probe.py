"""A model seen from outside: what it is called with, what changes when that changes, and where."""

import inspect
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

MASK = re.compile(r"(?i)mask")
PADDING_MASK = re.compile(r"(?i)padding_?mask")  # torch: True = hidden
MASKS = ("attention_mask", "key_padding_mask", "src_key_padding_mask")
LENGTHS = re.compile(r"(?i)len")
NO_SEQUENCE = re.compile(r"(?i)mask|len|label|position|type|segment|past_key|edge|image|pixel")
TARGET = re.compile(r"(?i)^(?:decoder_|tgt|target|query)")
RESULTS = ("logits", "last_hidden_state", "prediction_logits", "scores")
SIDE = re.compile(r"(?i)^(?:decoder_|tgt|target|src|source)")
CAUSAL = re.compile(r"(?i)causal")

Key = int | str  # of an input: its position or its keyword
Changes = Mapping[Key, Any]


class Sequence(NamedTuple):
    """An input that is a sequence of tokens: ids (B, L), or vectors (B, L, width).

    Args:
        keys: the inputs that are this tensor
        real: which positions are no padding, (B, L); None if nothing hides any
        mask: the input that says so
    """

    keys: tuple[Key, ...]
    real: Tensor | None
    mask: Key | None


class Probe:
    """A model with its inputs, called again and again on inputs that differ a little.

    It runs in evaluation mode, without gradients, and every time with the same seed; the mode of
    each module and the random generator are as they were afterwards.

    Args:
        model: a torch module
        inputs: a tensor, a tuple, or a dict of keywords
        causal: whether no position may depend on later ones; None for what the model claims
        padding: which positions are padding, (B, L); None for what masks and lengths say
        batch_first: whether the first dimension is the batch; None: unless the model is a module
            of torch that says otherwise
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: Any,
        causal: bool | None = None,
        padding: Tensor | None = None,
        batch_first: bool | None = None,
    ) -> None:
        self.model = model
        self.inputs: dict[Key, Any] = _as_dict(inputs)
        self.parameters = parameters(model)
        self.batch_first = _batch_first(model) if batch_first is None else batch_first
        self.sequences = self._find_sequences()
        if padding is not None and self.sequences:
            self.sequences[0] = self.sequences[0]._replace(real=~padding, mask=None)
        self.base = self.run()
        self.noise = self._noise()
        self.main = next((s for s in self.sequences if TARGET.match(self.name(s.keys[0]))), None)
        if self.main is None and self.sequences:
            self.main = self.sequences[0]
        self._causal = causal

    # ------------------------------------------------------------------ inputs

    def name(self, key: Key) -> str:
        """The name of an input, as the model's forward() declares it."""
        if isinstance(key, str):
            return key
        return self.parameters[key] if key < len(self.parameters) else f"input {key}"

    def _find_sequences(self) -> list[Sequence]:
        found: dict[Any, list[Key]] = {}
        for key, value in self.inputs.items():
            if not isinstance(value, Tensor) or NO_SEQUENCE.search(self.name(key)):
                continue
            ids = value.dim() == 2 and value.dtype in (torch.int64, torch.int32)
            if value.numel() and (ids or (value.dim() == 3 and value.is_floating_point())):
                same = key if SIDE.search(self.name(key)) else id(value)  # as in self-attention
                found.setdefault(same, []).append(key)
        sequences = [Sequence(tuple(keys), None, None) for keys in found.values()]
        for key, value in self.inputs.items():
            if isinstance(value, Tensor):
                self._attach(sequences, key, value)
        return [self._with_padding_ids(sequence) for sequence in sequences]

    def _attach(self, sequences: list[Sequence], key: Key, value: Tensor) -> None:
        """Let a mask or lengths say which positions of its sequence are real."""
        name = self.name(key)
        prefix = re.split(r"(?i)_?(?:key_|attention_)?(?:padding_)?(?:mask|len)", name)[0]
        fits = []
        for index, each in enumerate(sequences):
            B, L = self.shape(each)
            if MASK.search(name) and value.shape == (B, L) and each.real is None:
                real = value > (-1.0 if value.is_floating_point() and value.min() < 0 else 0)
                fits.append((index, ~real if PADDING_MASK.search(name) else real))
            elif LENGTHS.search(name) and value.shape == (B,) and not value.is_floating_point():
                steps = torch.arange(L, device=value.device)
                fits.append((index, steps < value.unsqueeze(1)))
        likely = [fit for fit in fits if prefix and self.key_named(sequences[fit[0]], prefix)]
        for index, real in (likely or fits)[:1]:
            sequences[index] = sequences[index]._replace(real=real, mask=key)

    def key_named(self, sequence: Sequence, prefix: str) -> bool:
        return any(self.name(key).startswith(prefix) for key in sequence.keys)

    def _with_padding_ids(self, sequence: Sequence) -> Sequence:
        """Take tokens for padding that an embedding of the model does, if no mask says more."""
        ids, pad = self.tensor(sequence), self.padding_id
        if sequence.real is not None or ids.is_floating_point() or pad is None:
            return sequence
        return sequence._replace(real=ids != pad) if (ids == pad).any() else sequence

    @property
    def padding_id(self) -> int | None:
        """The token that an embedding of the model takes for padding."""
        tables = (each for each in self.model.modules() if isinstance(each, nn.Embedding))
        return next((each.padding_idx for each in tables if each.padding_idx is not None), None)

    def tensor(self, sequence: Sequence) -> Tensor:
        """A sequence as (B, L, ...)."""
        value: Tensor = self.inputs[sequence.keys[0]]
        return value if self.batch_first else value.transpose(0, 1)

    def shape(self, sequence: Sequence) -> tuple[int, int]:
        """Its batch and length."""
        B, L = self.tensor(sequence).shape[:2]
        return B, L

    def set(self, sequence: Sequence, value: Tensor) -> dict[Key, Any]:
        """The changes that put another tensor (B, L, ...) in the place of a sequence."""
        value = value if self.batch_first else value.transpose(0, 1)
        return dict.fromkeys(sequence.keys, value)

    def perturb(self, sequence: Sequence, where: Tensor) -> dict[Key, Any]:
        """The changes that replace what is at some positions (B, L) by something else."""
        x = self.tensor(sequence)
        generator = torch.Generator().manual_seed(0)
        if x.is_floating_point():
            noise = torch.randn(x.shape, generator=generator).to(x) * (x.std() + 1e-3)
            return self.set(sequence, torch.where(where.unsqueeze(-1), x + noise, x))
        real = x if sequence.real is None else x[sequence.real]
        known = real[real != self.padding_id].unique()
        if len(known) < 2:
            return self.set(sequence, torch.where(where, torch.where(x > 0, x - 1, x + 1), x))
        shift = torch.randint(1, len(known), x.shape, generator=generator).to(x.device)
        place = torch.searchsorted(known, x.contiguous()).clamp(max=len(known) - 1)
        return self.set(sequence, torch.where(where, known[(place + shift) % len(known)], x))

    def crop(
        self, changes: Changes, which: slice | list[int], length: int | None = None
    ) -> dict[Key, Any]:
        """All inputs of some examples alone, with the first positions of the first sequence."""
        held = {key for sequence in self.sequences for key in sequence.keys}
        L = self.shape(self.sequences[0])[1] if self.sequences else 0
        cropped = {**self.inputs, **changes}
        for key, value in cropped.items():
            if not isinstance(value, Tensor) or not value.dim():
                continue
            square = self._is_square(key, value)
            second = key in held and not self.batch_first
            if second or (len(value) == len(self.base) and not square):
                value = value[:, which] if second else value[which]
            if length is not None and square:
                value = value[..., :length, :length]
            elif length is not None and second:
                value = value[:length] if len(value) == L else value
            elif length is not None and value.dim() > 1 and value.shape[1] == L:
                value = value[:, :length]
            cropped[key] = value
        return cropped

    def other_examples(self) -> dict[Key, Any]:
        """The changes that replace all examples but the first."""
        B = len(self.base)
        changes: dict[Key, Any] = {}
        for sequence in self.sequences:
            if self.shape(sequence)[0] == B:
                others = torch.ones(self.shape(sequence), dtype=torch.bool, device=self.base.device)
                others[0] = False
                changes |= self.perturb(sequence, others)
        for key, value in self.inputs.items():
            if key in changes or not isinstance(value, Tensor) or self._is_square(key, value):
                continue
            if value.is_floating_point() and value.dim() > 2 and len(value) == B:
                changes[key] = torch.cat((value[:1], value[1:].flip(-1) + 1))
        return changes

    def hide(self, sequence: Sequence, real: Tensor) -> dict[Key, Any] | None:
        """The changes that declare all positions but some (B, L) padding; None if nothing can."""
        key = sequence.mask
        if key is None and sequence is self.sequences[0]:
            names = {self.name(key) for key in self.inputs}
            masks = [name for name in MASKS if name in self.parameters and name not in names]
            frames = self.tensor(sequence).is_floating_point()  # of which few models take a mask
            if "memory_key_padding_mask" in self.parameters:  # both would have to be given
                masks = []
            key = next((name for name in masks if not frames or PADDING_MASK.search(name)), None)
        if key is None:
            x, pad = self.tensor(sequence), self.padding_id
            says = any(MASK.search(name) or LENGTHS.search(name) for name in self.parameters)
            if x.is_floating_point() or pad is None or says:
                return None
            return self.set(sequence, torch.where(real, x, pad))
        value, name = self.inputs.get(key), self.name(key)
        if LENGTHS.search(name) and not MASK.search(name):
            lengths = real.sum(1)
            right = torch.arange(real.shape[1], device=real.device) < lengths.unsqueeze(1)
            return {key: lengths.to(value)} if torch.equal(real, right) else None
        if PADDING_MASK.search(name) and (value is None or value.dtype == torch.bool):
            return {key: ~real}
        if isinstance(value, Tensor) and value.is_floating_point():
            return {key: torch.zeros_like(value).masked_fill(~real, float("-inf"))}
        return {key: real.to(torch.int64 if value is None else value.dtype)}

    def _is_square(self, key: Key, value: Tensor) -> bool:
        square = value.dim() >= 2 and value.shape[-1] == value.shape[-2]
        return square and bool(MASK.search(self.name(key)))

    # ------------------------------------------------------------------ calls

    def call(self, changes: Changes | None = None, *, seed: int = 0) -> Any:
        """What the model returns."""
        inputs = {**self.inputs, **(changes or {})}
        own = {k: v.clone() if isinstance(v, Tensor) else v for k, v in inputs.items()}
        for sequence in self.sequences:
            for key in sequence.keys[1:]:  # self-attention takes the same tensor as such
                own[key] = own[sequence.keys[0]]
        args = [value for key, value in own.items() if isinstance(key, int)]
        options = {key: value for key, value in own.items() if isinstance(key, str)}
        with torch.no_grad(), evaluating(self.model), torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.model(*args, **options)

    def run(self, changes: Changes | None = None, *, seed: int = 0) -> Tensor:
        """The main result of the model, (B, L, ...) or (B, ...)."""
        return self.result(self.call(changes, seed=seed))

    def result(self, output: Any) -> Tensor:
        """The main result among what the model returned."""
        found = _main(output)
        if found is None:
            raise TypeError(
                f"check needs a model that returns a float tensor, got {type(output).__name__}"
            )
        return found if self.batch_first or found.dim() < 3 else found.transpose(0, 1)

    def asked(self, module: nn.Module, option: str) -> Tensor:
        """The result while a module gets the opposite of a boolean argument of its own.

        If it then returns a tuple in place of a tensor, its caller gets the first part.
        """
        position = parameters(module).index(option)
        default = inspect.signature(module.forward).parameters[option].default
        bare: list[bool] = []

        def turn(_: nn.Module, args: Any, options: Any) -> Any:
            if position < len(args):
                return (*args[:position], not args[position], *args[position + 1 :]), options
            before = options.get(option, default is True)
            return args, {**options, option: not before}

        def give(_: nn.Module, __: Any, output: Any) -> Any:
            return output[0] if bare[0] and isinstance(output, tuple) else output

        with ExitStack() as stack:
            note = module.register_forward_hook(lambda _, __, y: bare.append(torch.is_tensor(y)))
            try:
                self.call()
            finally:
                note.remove()
            for handle in (
                module.register_forward_pre_hook(turn, with_kwargs=True),
                module.register_forward_hook(give),
            ):
                stack.callback(handle.remove)
            return self.run()

    def _noise(self) -> float:
        """How much the result differs between seeds, or by rounding."""
        eps = max(
            torch.finfo(each.dtype).eps
            for each in (self.base, *self.model.parameters())
            if each.is_floating_point() and each.itemsize > 1
        )
        random = difference(self.base, self.run(seed=1))
        return max(eps**0.6, 4 * random if random < float("inf") else 0.0)

    def differs(self, a: Tensor, b: Tensor) -> float:
        """How much two results differ, relative to the largest value; 0 if by rounding alone."""
        if a.shape != b.shape:
            return float("inf")
        value = difference(a, b)
        return value if value > self.noise else 0.0

    def per_position(self, sequence: Sequence | None) -> bool:
        """Whether the result has a row for each position of a sequence."""
        return sequence is not None and self.base.shape[:2] == self.shape(sequence)

    # ------------------------------------------------------------------ claims

    def is_causal(self, triangular: bool) -> bool:
        """Whether the model says that no position depends on later ones.

        Args:
            triangular: whether most of its maps are
        """
        if self._causal is not None:
            return self._causal
        config = getattr(self.model, "config", None)
        if getattr(config, "is_encoder_decoder", False):
            return self.main is not None and self.name(self.main.keys[0]).startswith("decoder")
        if hasattr(self.model, "start") and hasattr(self.model, "step") and self.main is not None:
            return not self.tensor(self.main).is_floating_point()  # written token by token
        own = (value for key, value in self.inputs.items() if MASK.search(self.name(key)))
        if triangular or any(isinstance(each, Tensor) and is_triangular(each) for each in own):
            return True
        if any(value is True for key, value in self.inputs.items() if CAUSAL.search(str(key))):
            return True
        return any(
            getattr(module, "is_causal", None) is True
            or getattr(module, "causal", None) is True
            or (CAUSAL.search(type(module).__name__) and not hasattr(module, "is_causal"))
            or any(map(is_triangular, module.buffers(recurse=False)))
            for module in self.model.modules()
        )

    # ------------------------------------------------------------------ places

    def locate(self, before: Changes, after: Changes, rows: Tensor) -> str:
        """The first module whose inputs stay the same at some positions while its output changes.

        Args:
            rows: the positions, (B, L)
        """
        with self._recording() as first:
            self.call(before)
        with self._recording() as second:
            self.call(after)
        for one, two in zip(first, second, strict=False):
            same = not any(map(self._moved, one.inputs, two.inputs, [rows] * len(one.inputs)))
            if same and any(map(self._moved, one.outputs, two.outputs, [rows] * len(one.outputs))):
                return one.name
        return type(self.model).__name__

    def ignores(self, name: str, before: Changes, after: Changes, rows: Tensor) -> bool:
        """Whether what a module gives at some positions (B, L) stays the same."""
        with self._recording() as first:
            self.call(before)
        with self._recording() as second:
            self.call(after)
        pairs = [
            (a, b)
            for one, two in zip(first, second, strict=False)
            if one.name == name
            for a, b in zip(one.outputs, two.outputs, strict=False)
        ]
        return bool(pairs) and not any(self._moved(a, b, rows) for a, b in pairs)

    def _moved(self, a: Tensor, b: Tensor, rows: Tensor) -> bool:
        if a.shape != b.shape:
            return True
        B, L = rows.shape
        if a.shape[:2] == (L, B) and (L != B or not self.batch_first):
            a, b = a.transpose(0, 1), b.transpose(0, 1)
        elif len(a) == B * L:
            a, b = a.unflatten(0, (B, L)), b.unflatten(0, (B, L))
        if a.shape[:2] == (B, L):
            a, b = a[rows], b[rows]
        elif len(a) == B:
            a, b = a[rows.any(1)], b[rows.any(1)]
        return difference(a, b) > self.noise

    @contextmanager
    def _recording(self) -> Iterator[list["_Run"]]:
        runs: list[_Run] = []
        with ExitStack() as stack:
            for name, module in self.model.named_modules():

                def keep(
                    module: Any, args: Any, options: Any, output: Any, name: str = name
                ) -> None:
                    inputs = [*_tensors(args), *_tensors(options)]
                    runs.append(_Run(name or type(module).__name__, inputs, _tensors(output)))

                handle = module.register_forward_hook(keep, with_kwargs=True)
                stack.callback(handle.remove)
            yield runs


class Softmaxes(TorchFunctionMode):
    """Finds products with a softmax over their rows: its columns sum to one, its rows do not.

    Args:
        model: in whose modules
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.running = model, [type(model).__name__]
        self.followed: dict[int, Tensor] = {}  # by storage; held, so that it is not used again
        self.found: list[tuple[str, float]] = []  # module, and how far a row's sum is from one

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = getattr(function, "__name__", "")
        result = function(*args, **(kwargs or {}))
        if name in ("softmax", "_softmax"):
            self.followed[result.untyped_storage().data_ptr()] = result
        elif name in ("matmul", "__matmul__", "bmm") and isinstance(args[0], Tensor):
            left = args[0]
            if left.dim() > 1 and left.untyped_storage().data_ptr() in self.followed:
                rows, columns = ((left.double().sum(d) - 1).abs().max() for d in (-1, -2))
                if rows > 0.02 > columns:
                    self.found.append((self.running[-1], float(rows)))
        return result

    @contextmanager
    def watching(self) -> Iterator["Softmaxes"]:
        """Watch the model until the block ends."""
        with ExitStack() as stack:
            for name, module in self.model.named_modules():
                if name:
                    begin = module.register_forward_pre_hook(
                        lambda _, __, name=name: self.running.append(name)
                    )
                    end = module.register_forward_hook(lambda *_: self.running.pop() and None)
                    stack.callback(begin.remove)
                    stack.callback(end.remove)
            stack.enter_context(self)
            yield self


class _Run(NamedTuple):
    """A call of a module."""

    name: str
    inputs: list[Tensor]
    outputs: list[Tensor]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, until the block ends."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def difference(a: Tensor, b: Tensor) -> float:
    """The largest difference of two tensors, relative to the largest value of the first.

    >>> difference(torch.tensor([1.0, 4.0]), torch.tensor([1.0, 3.0]))
    0.25
    """
    if not a.numel():
        return 0.0
    a, b = a.double(), b.double()
    finite = a.isfinite() & b.isfinite()
    if (a.isfinite() != b.isfinite()).any():
        return float("inf")
    if not finite.any():
        return 0.0
    scale = a[finite].abs().max().clamp_min(1e-30)
    return float((a - b)[finite].abs().max() / scale)


def parameters(module: nn.Module) -> list[str]:
    """The names of the parameters of a module's forward()."""
    return list(inspect.signature(module.forward).parameters)


def is_triangular(mask: Tensor) -> bool:
    """Whether a square matrix of two values, such as a mask, has a diagonal as its border.

    >>> is_triangular(torch.ones(5, 5).tril(1)), is_triangular(torch.eye(5))
    (True, False)
    """
    if mask.dim() < 2 or mask.shape[-1] != mask.shape[-2] or mask.shape[-1] < 3:
        return False
    corner = mask.reshape(-1, *mask.shape[-2:])[0, :16, :16]
    ones = torch.ones_like(corner, dtype=torch.bool)
    shows = corner == corner[-1, 0]
    border = corner[0, -1]
    return bool(
        border != corner[-1, 0]
        and ((corner == border) | shows).all()
        and any(torch.equal(shows, ones.tril(offset)) for offset in (-1, 0, 1))
    )


def _as_dict(inputs: Any) -> dict[Key, Any]:
    if isinstance(inputs, Mapping):
        return dict(inputs)
    if isinstance(inputs, Tensor):
        return {0: inputs}
    if isinstance(inputs, tuple | list):
        return dict(enumerate(inputs))
    raise TypeError(
        "inputs should be what the model is called with: a tensor, a tuple, or a dict of "
        f"keywords, got {type(inputs).__name__}"
    )


def _batch_first(model: nn.Module) -> bool:
    """Whether the batch comes first: a module of torch may take (L, B, width)."""
    if not type(model).__module__.startswith("torch.nn."):
        return True
    inner = (each for each in model.modules() if isinstance(each, nn.MultiheadAttention))
    return all(each.batch_first for each in inner)


def _main(output: Any) -> Tensor | None:
    """The first float tensor with a dimension, those with the name of a result first."""
    if isinstance(output, Tensor):
        return output if output.is_floating_point() and output.dim() else None
    if isinstance(output, Mapping):
        names = [*(name for name in RESULTS if name in output), *output]
        output = [output[name] for name in names if name != "past_key_values"]
    if isinstance(output, tuple | list):
        return next((found for each in output if (found := _main(each)) is not None), None)
    return None


def _tensors(value: Any) -> list[Tensor]:
    """The float tensors and ids among arguments or results, with copies of their numbers."""
    if isinstance(value, Tensor):
        return [value.detach().clone()] if value.dim() and value.dtype != torch.bool else []
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, tuple | list):
        return [tensor for each in value for tensor in _tensors(each)]
    return []
