"""How long a training step on an image takes, by efficient and by dot-product attention.

    python -m benchmarks.image_step            # 56 × 56 pixels, every pixel a token

The two take turns, so that whatever else the machine does falls on both; the fastest of the steps
counts.
"""

import argparse
import time

import torch
import torch.nn.functional as F

from regard.models.image import ImageClassifier
from regard.models.options import SELF_ATTENTIONS


def main() -> None:
    """Print the fastest step of each attention, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", type=int, default=56)
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    wanted = parser.parse_args()
    torch.set_num_threads(wanted.threads)
    torch.manual_seed(0)
    images = torch.rand(wanted.rows, wanted.side, wanted.side)
    labels = torch.randint(10, (wanted.rows,))
    models = {
        name: ImageClassifier((wanted.side, wanted.side), 10, attention=name)
        for name in SELF_ATTENTIONS
    }
    optimizers = {name: torch.optim.AdamW(model.parameters()) for name, model in models.items()}
    fastest = dict.fromkeys(SELF_ATTENTIONS, float("inf"))
    for _ in range(wanted.turns):
        for name, model in models.items():
            start = time.perf_counter()
            optimizers[name].zero_grad()
            F.cross_entropy(model(images).logits, labels).backward()
            optimizers[name].step()
            fastest[name] = min(fastest[name], time.perf_counter() - start)
    tokens = wanted.side**2
    print(f"{tokens:,} tokens, {wanted.rows} images, {wanted.threads} threads")
    for name, seconds in fastest.items():
        print(f"{name}: {1000 * seconds:.0f} ms a step")
    print(f"efficient is {fastest['dot'] / fastest['efficient']:.1f} times faster")


if __name__ == "__main__":
    main()
