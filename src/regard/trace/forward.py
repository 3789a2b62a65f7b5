"""The forward pass of a model: arguments, embedded input and output, so that it can run again."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from regard.models.embedding import Frames, Tokens

EMBEDDINGS = (nn.Embedding, Tokens, Frames)


class Forward:
    """The last call of a model inside a block, with what gradients of its input need.

    The embedded input is the output of `model.get_input_embeddings()`, as transformers declares it,
    or of the first embedding that runs. It requires a gradient also in a frozen model.

    >>> model = nn.Sequential(nn.Embedding(7, 3), nn.Linear(3, 5))
    >>> forward = Forward(model)
    >>> with forward.recording():
    ...     logits = model(torch.tensor([[2, 4]]))
    >>> forward.embedded.shape, torch.equal(forward.again(), logits)
    (torch.Size([1, 2, 3]), True)

    Args:
        model: a torch module
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.embedded: Tensor | None = None  # (B, N, D)
        self.output: Any = None
        self._arguments: tuple[tuple[Any, ...], dict[str, Any]] | None = None
        self._embedding: nn.Module | None = None
        self._tables: list[nn.Module] = [
            each for each in model.modules() if isinstance(each, EMBEDDINGS)
        ]
        declared = getattr(model, "get_input_embeddings", None)
        try:
            table = None if declared is None else declared()
        except (AttributeError, NotImplementedError):  # transformers' ways to have none
            table = None
        if isinstance(table, nn.Module):
            self._tables = [table]

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record the calls of the model until the block ends."""
        handles = [
            self.model.register_forward_pre_hook(self._begin, with_kwargs=True),
            self.model.register_forward_hook(self._end),
        ]
        handles += [table.register_forward_hook(self._embed) for table in self._tables]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def again(self, change: Callable[[Tensor], Tensor] | None = None) -> Any:
        """Run the model again with the same arguments; returns its output.

        Args:
            change: of the embedded input, (B, N, D)

        Raises:
            ValueError: if the model itself was not called
        """
        if self._arguments is None:
            raise ValueError(
                f"this method runs the model again, and {type(self.model).__name__} itself was not "
                "called, or had changed arguments: call model(...) in the block of capture"
            )
        args, options = self._arguments
        handles = []
        if change is not None:
            if self._embedding is None:
                raise ValueError(f"{type(self.model).__name__} has no embedding of its input")
            waiting = [change]  # for the first call: a decoder may share the table

            def changed(table: nn.Module, args: Any, output: Tensor) -> Tensor:
                return waiting.pop()(output) if waiting else output

            handles.append(self._embedding.register_forward_hook(changed))
        try:
            return self.model(*args, **options)
        finally:
            for handle in handles:
                handle.remove()

    def _begin(self, model: nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        self.embedded, self._arguments = None, (args, options)

    def _end(self, model: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        self.output = output

    def _embed(self, table: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor | None:
        is_sequence = isinstance(output, Tensor) and output.dim() == 3
        if self.embedded is not None or not is_sequence or not torch.is_grad_enabled():
            return None
        self._embedding = table
        self.embedded = output if output.requires_grad else output.requires_grad_()
        return self.embedded.clone()  # which the model may change in place
