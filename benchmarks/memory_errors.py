"""Which bits of repeat-copy a Neural Turing Machine has wrong.

    python -m benchmarks.memory_errors RUN [--sizes 1 5 10 20]

Of each size 20 sequences with every number of copies. Prints the share of wrong bits, the share in
each copy, how many of the wrong bits of copies are in the first vector of one, and how many end
markers were missed.
"""

import argparse

import torch

import regard
from regard.data.sequences import MOST_REPEATS, draw_bits

COUNT = 20


@torch.no_grad()
def main() -> None:
    """Print a line for each size."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 5, 10, 20])
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    model = regard.load(wanted.run).model
    for size in wanted.sizes:
        wrong, bits, missed = 0.0, 0, 0.0
        copies, seen = torch.zeros(MOST_REPEATS, size), torch.zeros(MOST_REPEATS)
        for repeats in range(1, MOST_REPEATS + 1):
            drawn = draw_bits("repeat_copy", COUNT, size, seed=repeats, repeats=repeats)
            answer = model(drawn.inputs).logits[:, drawn.due] > 0
            errors = (answer != (drawn.targets[:, drawn.due] > 0.5)).float()  # (B, T, 9)
            wrong, bits = wrong + float(errors.sum()), bits + errors.numel()
            missed += float(errors[:, -1, -1].sum())
            copies[:repeats] += errors[:, :-1, :-1].unflatten(1, (repeats, size)).sum((0, 3))
            seen[:repeats] += COUNT * size * (errors.shape[-1] - 1)
        first = float(copies[:, 0].sum() / copies.sum().clamp(min=1))
        shares = " ".join(f"{share:.1%}" for share in copies.sum(1) / seen)
        ends = missed / (COUNT * MOST_REPEATS)
        print(
            f"size {size}: {wrong / bits:.2%} wrong; by copy {shares}; {first:.0%} of these in the "
            f"first vector; {ends:.1%} of the end markers missed",
            flush=True,
        )


if __name__ == "__main__":
    main()
