"""How recurrent models start, and how fast they learn from there, on Multi30k en→fr.

    python -m benchmarks.recurrent_start            # the first batch alone
    python -m benchmarks.recurrent_start --steps 600
    python -m benchmarks.recurrent_start --maps RUN     # of a trained Luong model

Compares two ways to initialise the same models on the same batches: torch's (uniform ±1/√hidden
for matrices and biases, embeddings of size 1/√dim, general scores with small entries) and this
library's. Prints how much states and features differ between tokens, the gradient that reaches
each recurrent layer, and the validation loss. With `--maps`, how sharp the maps of a run are.
"""

import argparse
import itertools
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from regard.core.score import General
from regard.models import Tokens
from regard.recipes import load_recipe
from regard.tasks import load
from regard.tasks.translate import TranslateTask, target_features
from regard.training import read_config, read_run_config

MODELS = {
    "Luong, general score": ("multi30k-en-fr", "general"),
    "Luong, additive score": ("multi30k-en-fr", "additive"),
    "GNMT, 4 + 4 layers": ("multi30k-en-fr-gnmt", "additive"),
}
LEARNING_RATE, WARMUP = 2e-3, 400


def as_torch(model: nn.Module) -> None:
    """Initialise recurrent layers, embeddings and general scores as torch and the papers do."""
    for part in model.modules():
        if isinstance(part, nn.RNNBase):
            part.reset_parameters()
        elif isinstance(part, Tokens):
            part.scale = 1.0
        elif isinstance(part, General):
            part.weight.data *= part.scale
            part.scale = 1.0


def start(task: TranslateTask, model: nn.Module) -> str:
    """How much states and features differ between tokens, and the gradients of recurrent layers."""
    batch = task.batch(0, 0)
    states = model.eval().encode(batch.source, batch.source_lengths).states  # type: ignore
    features, tokens = target_features(model, batch)
    nn.functional.cross_entropy(model.output(features), tokens).backward()  # type: ignore
    layers = [part for part in model.modules() if isinstance(part, nn.RNNBase)]
    gradients = [f"{layer.weight_ih_l0.grad.norm():.1e}" for layer in layers]  # type: ignore
    model.zero_grad()
    return (
        f"states differ by {_spread(states.flatten(0, 1)):.4f}, features by "
        f"{_spread(features):.4f}; gradients, bottom to top: {' '.join(gradients)}"
    )


def _spread(rows: Tensor) -> float:
    return (rows - rows.mean(0)).std().item()


def learn(task: TranslateTask, model: nn.Module, steps: int) -> Iterator[tuple[int, float]]:
    """Train with Adam; the validation loss after every hundred steps."""
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    batches = (
        task.batch(epoch, i) for epoch in itertools.count() for i in range(task.steps(epoch))
    )
    model.train()
    for step, batch in enumerate(itertools.islice(batches, steps), start=1):
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * min(1.0, step / WARMUP)
        loss = task.loss(model, batch)
        optimizer.zero_grad()
        (loss.total / loss.count).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 0 or step == steps:
            yield step, validation_loss(task, model)


@torch.no_grad()
def validation_loss(task: TranslateTask, model: nn.Module) -> float:
    """Cross entropy of the validation tokens."""
    total, count = 0.0, 0
    model.eval()
    for batch in task.evaluation_batches():
        features, tokens = target_features(model, batch)
        logits = model.output(features)  # type: ignore[operator]
        total += nn.functional.cross_entropy(logits, tokens, reduction="sum").item()
        count += len(tokens)
    model.train()
    return total / count


@torch.no_grad()
def sharpness(run: Path) -> str:
    """The entropy of a Luong model's maps and the deviation of its scores, in the first batch."""
    model = load(run).model
    batch = next(TranslateTask.from_config(read_run_config(run), run).evaluation_batches())
    memory, decoder = model.encode(batch.source, batch.source_lengths), model.decoder
    given = decoder.embedding(batch.target[:, :-1])
    states, _ = decoder.recurrent(given, decoder.bridge(memory))
    scores = decoder.attention.score(states, memory.states)  # (batch, T, S)
    hidden = torch.arange(scores.shape[-1]) >= batch.source_lengths[:, None, None]
    map = scores.masked_fill(hidden, -torch.inf).softmax(-1)
    entropy = torch.special.entr(map).sum(-1).mean()
    deviation = scores[~hidden.expand_as(scores)].std()
    return f"{run}: entropy {entropy:.2f} nats, deviation of scores {deviation:.1f}"


def main() -> None:
    """Print one block for each model and initialisation."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=0, help="train for this many steps")
    parser.add_argument("--only", default="", help="models whose name contains this")
    parser.add_argument("--maps", type=Path, nargs="+", default=[], help="runs")
    wanted = parser.parse_args()
    for run in wanted.maps:
        print(sharpness(run), flush=True)
    if wanted.maps:
        return
    for name, (recipe, score) in MODELS.items():
        if wanted.only not in name:
            continue
        task = TranslateTask.from_config(read_config(load_recipe(recipe), [f"model.score={score}"]))
        for own in (False, True):
            torch.manual_seed(0)
            model = task.build()
            if not own:
                as_torch(model)
            print(f"{name}, initialised {'by regard' if own else 'as torch does'}", flush=True)
            print(f"    {start(task, model)}", flush=True)
            for step, loss in learn(task, model, wanted.steps):
                print(f"    step {step}: validation loss {loss:.3f}", flush=True)


if __name__ == "__main__":
    main()
