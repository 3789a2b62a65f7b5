"""How a Neural Turing Machine starts, and how fast it learns to recall from there.

    python -m benchmarks.memory_start               # before any training
    python -m benchmarks.memory_start --steps 500
    python -m benchmarks.memory_start --steps 500 --copy

Compares three starts of the same machine on the same batches of associative recall: torch's
initial weights; those of this library without the equal keys; and those of this library. Prints on
how many slots a write is spread, the weight that reading by content gives the slot of the query's
last vector, and with `--steps` the share of wrong bits.

With `--copy` the task is repeat-copy with one copy, and two values of `search` are compared. Prints
the mean loss of each hundred steps, and where the read head then is: its weight on the slot of the
first vector during the last input, and on the two newest slots at the end marker.
"""

import argparse
import copy

import torch
from torch import nn

from regard.data.sequences import ITEM, RECALL_WIDTH, draw_bits
from regard.models.turing import NeuralTuringMachine
from regard.recipes import load_recipe
from regard.tasks.memory import MemoryTask
from regard.training import read_config
from regard.training.optimizer import AdamW

ITEMS, COUNT = 6, 100


def machine(start: str) -> NeuralTuringMachine:
    """The machine of `regard train memory --set data.name=recall`."""
    torch.manual_seed(1)
    model = NeuralTuringMachine(RECALL_WIDTH + 2, RECALL_WIDTH)
    heads = model.memory.read_heads, model.memory.write_heads
    if start == "torch":
        for part in (model.controller, *heads):
            part.reset_parameters()
    if start == "keys differ":
        nn.init.xavier_uniform_(heads[0].weight, gain=3.0)
    return model


@torch.no_grad()
def spread_and_found(model: NeuralTuringMachine) -> tuple[float, float]:
    """Slots of a write, 1 / Σ w², and the weight that the query's last vector gives its slot.

    The read head is made to look by content alone.
    """
    model = copy.deepcopy(model)
    width = model.memory.width
    model.memory.read_heads.bias[width + 1] = 20.0  # the gate
    model.memory.read_heads.bias[width + 3] = 20.0  # the shift by 0
    bits = draw_bits("recall", COUNT, ITEMS, seed=1)
    seen = model(bits.inputs, return_map=True)
    assert seen.read_weights is not None
    assert seen.write_weights is not None
    write, read = seen.write_weights.squeeze(2), seen.read_weights.squeeze(2)  # (B, T, slots)
    listed = ITEMS * (ITEM + 1)
    items = bits.inputs[:, :listed].unflatten(1, (ITEMS, -1))[:, :, 1:]
    query = bits.inputs[:, listed + 1 : listed + 1 + ITEM]
    number = (items == query.unsqueeze(1)).flatten(2).all(-1).int().argmax(1)
    row = torch.arange(COUNT)
    slot = write[row, number * (ITEM + 1) + ITEM].argmax(-1)  # of the last vector of the item
    found = read[row, listed + ITEM, slot]
    return float((1 / write[:, :listed].square().sum(-1)).mean()), float(found.mean())


def learn(model: NeuralTuringMachine, steps: int) -> str:
    """Wrong bits after so many steps with the recipe's learning rate."""
    settings = ["data.name=recall", "data.shortest=2", f"data.longest={ITEMS}"]
    config = read_config(load_recipe("memory"), settings)
    task = MemoryTask.from_config(config)
    optimizer = AdamW(model, config.training)
    for step in range(steps):
        loss = task.loss(model, task.batch(0, step))
        loss.total.backward()
        optimizer.step(config.training.lr, loss.count)
    found = task.evaluate(model)
    return (
        f"; after {steps} steps {found['bit_error']:.1%} wrong, "
        f"{found['bit_error_longer']:.1%} of {task.longer} items"
    )


def copy_once(search: float, steps: int) -> None:
    """Print how one copy and an end marker are learned, and where the read head is."""
    settings = ["data.name=repeat_copy", "data.longest=10", f"data.single={steps}"]
    config = read_config(load_recipe("memory"), [*settings, f"model.search={search}"])
    task = MemoryTask.from_config(config)
    torch.manual_seed(1)
    model = task.build()
    assert isinstance(model, NeuralTuringMachine)
    optimizer, losses = AdamW(model, config.training), []
    for step in range(steps):
        loss = task.loss(model, task.batch(*divmod(step, task.data.batches)))
        loss.total.backward()
        optimizer.step(config.training.lr, loss.count)
        losses.append(loss.total.item() / loss.count)
    means = [sum(losses[at : at + 100]) / 100 for at in range(0, steps - 99, 100)]
    size = 8
    bits = draw_bits("repeat_copy", COUNT, size, seed=1, repeats=1)
    with torch.no_grad():
        read = model(bits.inputs, return_map=True).read_weights
    assert read is not None
    steps_seen = read.shape[1]  # the newest slot has this number
    first, newest = read[:, size - 1, 0, 1], read[:, -1, 0, steps_seen - 1 : steps_seen + 1]
    print(f"search {search}: loss", *(f"{mean:.3f}" for mean in means), flush=True)
    ends = newest.sum(-1).mean()
    print(
        f"    weight of the first slot {first.mean():.2f}; at the end, of the newest two {ends:.2f}"
    )


def main() -> None:
    """Print a line for each start."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--copy", action="store_true")
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    if wanted.copy:
        for search in (0.5, 0.05):
            copy_once(search, wanted.steps)
        return
    for start in ("torch", "keys differ", "regard"):
        model = machine(start)
        slots, found = spread_and_found(model)
        learned = learn(model, wanted.steps) if wanted.steps else ""
        print(f"{start:12}{slots:5.1f} slots, weight {found:.3f}{learned}", flush=True)


if __name__ == "__main__":
    main()
