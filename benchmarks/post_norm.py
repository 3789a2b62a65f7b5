"""How post-norm Transformers start, and how fast they learn from there, on Multi30k en→de.

    python -m benchmarks.post_norm             # the first batch alone
    python -m benchmarks.post_norm --steps 500

Compares pre-norm, post-norm whose sublayers start as in torch, and post-norm as this library
starts it. Prints how much features differ between tokens, the gradient of the queries of the
decoder's self-attentions, and the loss of a third of 500 validation pairs.
"""

import argparse
import itertools

import torch
import torch.nn.functional as F
from torch import nn

from regard.models import Transformer
from regard.models.stack import ADDING
from regard.recipes import load_recipe
from regard.tasks.translate import TranslateTask, target_features
from regard.training import Config, read_config
from regard.training.optimizer import AdamW
from regard.training.schedule import learning_rate

SETTINGS = (
    "data.tokens=1200", "data.vocabulary=4000", "data.valid_count=500",
    "training.schedule=constant", "training.warmup=200",
)  # fmt: skip
CASES = {  # norm, whether to undo the small start, learning rate
    "pre-norm, 0.003": ("pre", False, 0.003),
    "post-norm as in torch, 0.003": ("post", True, 0.003),
    "post-norm as in torch, 0.0014": ("post", True, 0.0014),
    "post-norm, 0.0014": ("post", False, 0.0014),
    "post-norm, 0.003": ("post", False, 0.003),
}


@torch.no_grad()
def start_as_torch(model: Transformer) -> None:
    """Undo the small start of a post-norm model."""
    for stack in (model.encoder, model.decoder):
        for name, weight in stack.layers.named_parameters():
            if weight.dim() > 1 and any(part in name for part in ADDING):
                weight.mul_((8 * len(stack.layers)) ** 0.25)


def first_batch(task: TranslateTask, model: Transformer) -> str:
    """How much features differ between tokens, and gradients, in the first batch."""
    features, tokens = target_features(model.eval(), task.batch(0, 0))
    F.cross_entropy(model.output(features), tokens).backward()
    layers = [layer.attention.query_projection for layer in model.decoder.layers]  # type: ignore
    gradients = " ".join(f"{layer.weight.grad.norm():.3f}" for layer in layers)  # type: ignore
    model.zero_grad()
    spread = (features - features.mean(0)).std()
    return f"features differ by {spread:.2f}; gradients, bottom to top: {gradients}"


def learn(task: TranslateTask, model: nn.Module, config: Config, steps: int) -> None:
    """Train, and print the validation loss after every hundred steps."""
    optimizer = AdamW(model, config.training)
    batches = (
        task.batch(epoch, i) for epoch in itertools.count() for i in range(task.steps(epoch))
    )
    for step, batch in enumerate(itertools.islice(batches, steps), start=1):
        loss = task.loss(model.train(), batch)
        loss.total.backward()
        optimizer.step(learning_rate(config.training, step), loss.count)
        if step % 100 == 0 or step == steps:
            print(
                f"    step {step}: validation loss {validation_loss(task, model):.2f}", flush=True
            )


@torch.no_grad()
def validation_loss(task: TranslateTask, model: nn.Module) -> float:
    """Cross entropy of the tokens of every third validation batch."""
    total, count = 0.0, 0
    for batch in itertools.islice(task.evaluation_batches(), 0, None, 3):
        features, tokens = target_features(model.eval(), batch)
        logits = model.output(features)  # type: ignore[operator]
        total += F.cross_entropy(logits, tokens, reduction="sum").item()
        count += len(tokens)
    return total / count


def main() -> None:
    """Print one block for each case."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=0, help="train for this many steps")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    for name, (norm, undo, lr) in CASES.items():
        if wanted.only not in name:
            continue
        changes = [*SETTINGS, f"model.norm={norm}", f"training.lr={lr}"]
        config = read_config(load_recipe("multi30k"), changes)
        task = TranslateTask.from_config(config)
        torch.manual_seed(config.seed)
        model = task.build()
        assert isinstance(model, Transformer)
        if undo:
            start_as_torch(model)
        print(name, first_batch(task, model), sep="\n    ", flush=True)
        learn(task, model, config, wanted.steps)


if __name__ == "__main__":
    main()
