"""How efficient attention over pixels starts, and how fast it learns from there.

    python -m benchmarks.image_start                      # before any training
    python -m benchmarks.image_start --steps 600          # and validation accuracy on the way

Compares dot-product attention, efficient attention, and efficient attention whose projections of
queries and keys start half as large, like the others, on the same batches of Fashion-MNIST, every
pixel a token.
Prints the size of what the attention of each layer adds, how much of it differs between the tokens
of an image, and with `--steps` the accuracy on validation images.
"""

import argparse
import time

import torch
from torch import nn

from regard.data.image import as_input
from regard.layers import EfficientAttention, MultiHeadAttention
from regard.models.image import ImageClassifier
from regard.recipes import load_recipe
from regard.tasks.image import ImageTask
from regard.training import read_config
from regard.training.optimizer import AdamW
from regard.training.schedule import learning_rate


def classifier(task: ImageTask, start: str, patch: int) -> ImageClassifier:
    """A classifier of this library's size, with one of the starts."""
    torch.manual_seed(1)
    attention = "dot" if start == "dot" else "efficient"
    size = tuple(task.data.scale * side for side in task.train.pixels.shape[1:])
    model = ImageClassifier(size, len(task.train.classes), patch=patch, attention=attention)
    if start == "flat":
        for part in attentions(model):
            part.query_projection.weight.detach().div_(2)
            part.key_projection.weight.detach().div_(2)
    return model


def attentions(model: nn.Module) -> list[nn.Module]:
    """Its attention layers."""
    kinds = EfficientAttention, MultiHeadAttention
    return [part for part in model.modules() if isinstance(part, kinds)]


@torch.no_grad()
def added(model: nn.Module, images: torch.Tensor) -> list[str]:
    """What each attention adds, and how it differs between tokens: root mean squares."""
    found: list[str] = []

    def note(layer: nn.Module, args: tuple, y: torch.Tensor) -> None:
        differs = y - y.mean(1, keepdim=True)
        found.append(f"{y.square().mean().sqrt():.2f} ({differs.square().mean().sqrt():.3f})")

    hooks = [part.register_forward_hook(note) for part in attentions(model)]
    model(images)
    for hook in hooks:
        hook.remove()
    return found


@torch.no_grad()
def accuracy(model: nn.Module, task: ImageTask) -> float:
    """The share of validation images that it classifies correctly."""
    parts = zip(task.valid.pixels.split(50), task.valid.labels.split(50), strict=True)
    right = [
        model(as_input(pixels, task.data.scale)).logits.argmax(-1) == labels
        for pixels, labels in parts
    ]
    return float(torch.cat(right).float().mean())


def main() -> None:
    """Print a line for each start, and with `--steps` one for each evaluation."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--every", type=int, default=100)
    parser.add_argument("--scale", type=int, default=1, help="2 has 3,136 pixels instead of 784")
    parser.add_argument("--patch", type=int, default=1, help="side of a token in pixels")
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--starts", nargs="+", default=["dot", "flat", "efficient"])
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    settings = [f"data.scale={wanted.scale}", f"data.rows={wanted.rows}", "data.test_limit=1000"]
    settings += ["training.warmup=50", f"training.steps={max(1, wanted.steps)}"]
    config = read_config(load_recipe("fashion"), settings)
    task = ImageTask.from_config(config)
    images = as_input(task.train.pixels[:4], wanted.scale)
    for start in wanted.starts:
        model, begin = classifier(task, start, wanted.patch), time.process_time()
        print(f"{start:10}", *added(model, images), sep="  ", flush=True)
        optimizer = AdamW(model, config.training)
        for step in range(1, wanted.steps + 1):
            loss = task.loss(model, task.batch(0, step - 1))
            loss.total.backward()
            optimizer.step(learning_rate(config.training, step, last=wanted.steps), loss.count)
            if step % wanted.every == 0:
                right, seconds = accuracy(model, task), time.process_time() - begin
                print(f"  step {step}: {right:.1%}, {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
