"""`regard demo`: a tour of `attend()` in the terminal."""

import textwrap

import torch
from torch import Tensor

import regard
from regard.visual import heatmap

WIDTH = 88  # of the running text

# Embeddings made by hand, so that every number of the tour can be checked by hand.
FEATURES = ("person", "eating", "redness", "fruit")
VECTORS = {
    "I": (2, 0, 0, 0),
    "eat": (1, 2, 0, 1),
    "red": (0, 0, 2, 1),
    "apples": (0, 0, 1, 2),
}
KOREAN = {"나는": "I", "빨간": "red", "사과를": "apples", "먹는다": "eat"}


def demo() -> None:
    """Take a tour of attend() in the terminal: maps, masks, empty rows, paths."""
    english, korean = list(VECTORS), list(KOREAN)
    query = torch.tensor([VECTORS[word] for word in english], dtype=torch.float32)  # (4, 4)
    key = torch.tensor([VECTORS[KOREAN[word]] for word in korean], dtype=torch.float32)  # (4, 4)

    _introduction()
    _alignment(query, key, english, korean)
    _sparse(query, key, english, korean)
    _causal(query, english)
    _empty(query, key)
    _paths()


def _introduction() -> None:
    print("regard computes attention, normalize[ score(Q, K) + mask ] · V, by one call: attend().")
    print("Four words, and what they mean in numbers that somebody made up:\n")
    print(" " * 8 + "".join(f"{feature:>9}" for feature in FEATURES))
    for word, vector in VECTORS.items():
        print(f"{word:<8}" + "".join(f"{number:>9}" for number in vector))
    gloss = ", ".join(f"{korean} ({english})" for korean, english in KOREAN.items())
    print(f"\nThe same in Korean, word by word: {gloss}.")


def _alignment(query: Tensor, key: Tensor, english: list[str], korean: list[str]) -> None:
    attended = regard.attend(query, key, key, return_map=True)
    _step(
        "1. Who looks at whom",
        "attended = regard.attend(english, korean, korean, return_map=True)",
        "Each English word (a row) asks each Korean word (a column) how well it fits, by the dot "
        "product of their vectors over √4; a softmax makes every row sum to 1. The verb comes last "
        "in Korean, so `eat` looks to the far right. No rule of word order was needed for that.",
    )
    print(heatmap(attended.map.dense(), english, korean))
    context = ", ".join(f"{number:.2f}" for number in attended.output[english.index("eat")])
    print(f"\nWhat `eat` takes home is the Korean vectors mixed by its row: ({context}).")


def _sparse(query: Tensor, key: Tensor, english: list[str], korean: list[str]) -> None:
    attended = regard.attend(query, key, key, normalize="sparsemax", return_map=True)
    _step(
        "2. The same question, another normalizer",
        'regard.attend(english, korean, korean, normalize="sparsemax", return_map=True)',
        "A softmax never says never: every weight above is larger than 0. Sparsemax gives exact "
        "zeros, and `red` still shares its attention with the apples. Scores and masks are "
        "exchanged in the same way, each by one argument.",
    )
    print(heatmap(attended.map.dense(), english, korean))


def _causal(query: Tensor, english: list[str]) -> None:
    attended = regard.attend(query, query, query, mask=regard.causal(), return_map=True)
    _step(
        "3. Looking back only",
        "regard.attend(english, english, english, mask=regard.causal(), return_map=True)",
        "A sentence attends to itself, and no word sees the words after it. Masks compose: with "
        "regard.causal() & regard.window(1, 0) a word sees itself and the one before it.",
    )
    print(heatmap(attended.map.dense(), english, english))


def _empty(query: Tensor, key: Tensor) -> None:
    queries = torch.stack([query, query]).requires_grad_()  # (2, 4, 4)
    keys = torch.stack([key, key])  # (2, 4, 4)
    output = regard.attend(queries, keys, keys, mask=regard.lengths(torch.tensor([4, 0])))
    output.sum().backward()
    textbook = torch.full((4,), -torch.inf).softmax(-1)
    _step(
        "4. Nothing to look at",
        "regard.attend(queries, keys, keys, mask=regard.lengths(torch.tensor([4, 0])))",
        "Two sentences in a batch, and the second one is empty. A plain softmax over nothing but "
        "-inf is NaN, and one NaN ruins a training run. Here it is zero, and so is its gradient.",
    )
    print(f"a plain softmax     {textbook.tolist()}")
    print(f"output of `I`       {output[1, 0].tolist()}")
    assert queries.grad is not None
    print(f"gradient of `I`     {queries.grad[1, 0].tolist()}")


def _paths() -> None:
    query, key, value = torch.randn(3, 1, 8, 1024, 64)  # each (batch, heads, length, dim)
    _step(
        "5. How it is computed",
        "print(regard.explain(query, key, value, mask=...))",
        "One call, several ways to compute it, all with the same result. explain() names the way "
        "that attend() would take, and why. For 1024 positions and 8 heads of 64:",
    )
    for title, mask in (
        ("Everything visible", None),
        ("The 64 before", regard.causal() & regard.window(64, 0)),
    ):
        plan = regard.explain(query, key, value, mask=mask)
        print(textwrap.fill(f"{title}: {plan}", WIDTH), end="\n\n")
    print("`regard doctor` asks the same about more requests.")


def _step(title: str, code: str, text: str) -> None:
    print(f"\n{title}\n\n    {code}\n\n{textwrap.fill(text, WIDTH)}\n")
