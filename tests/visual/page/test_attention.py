"""The attention of the pages, in a real browser, against `regard.attend`."""

import json
import unicodedata
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regard
from regard.core.normalize import NORMALIZERS
from regard.layers import MultiHeadAttention, PositionalEncoding
from regard.visual.page.document import bundle

M, N, D, K, V, H = 3, 5, 4, 2, 3, 7  # queries, keys, and the widths of q, k, v and the hidden layer
TOLERANCE = 1e-5
CELLS = torch.tensor(
    [[1, 0, 1, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]]
).bool()  # a row sees nothing
IDS, KEY_IDS = torch.tensor([0, 1, 7]), torch.tensor([0, 0, 1, 1, 2])


@pytest.fixture(scope="module")
def run(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Call a function of JavaScript, of the module and one argument, in a page opened from disk."""
    folder = tmp_path_factory.mktemp("attention")
    modules = f"const modules = {{}};\n{bundle('attention.js')}"
    script = f"(() => {{\n{modules}window.attention = modules['attention.js'];\n}})();"
    (folder / "attention.js").write_text(script, encoding="utf-8")
    (folder / "page.html").write_text('<script src="attention.js"></script>', encoding="utf-8")
    page = browser.new_page()
    page.goto((folder / "page.html").as_uri())
    yield lambda code, given: page.evaluate(f"(given) => ({code})(window.attention, given)", given)
    page.close()


def scores(width: int, key_width: int) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Every score for these widths, and its parameters as the page takes them."""
    torch.manual_seed(5)
    modules: dict[str, nn.Module] = {
        "general": regard.General(width, key_width),
        "biased_general": regard.BiasedGeneral(width, key_width),
        "activated_general": regard.ActivatedGeneral(width, key_width),
        "additive": regard.Additive(width, key_width, H),
        "concat": regard.Concat(width, key_width, H),
        "location": regard.Location(width, N + 1),
    }
    if width == key_width:
        modules |= {"dot": regard.Dot(), "scaled_dot": regard.ScaledDot()}
        modules["cosine"] = regard.Cosine(3.0)
    found = {}
    for name, module in modules.items():
        for parameter in module.double().parameters():
            nn.init.normal_(parameter)
        values = {camel(key): value.tolist() for key, value in module.state_dict().items()}
        found[name] = (module, values)
    return found


def camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


MASKS = {
    "none": (None, "null"),
    "causal": (regard.causal(), "MASKS.causal()"),
    "window": (regard.window(1, 0), "MASKS.window(1, 0)"),
    "padding": (regard.lengths(torch.tensor(3)), "MASKS.padding(3)"),
    "segments": (
        regard.segments(IDS, KEY_IDS),
        f"MASKS.segments({IDS.tolist()}, {KEY_IDS.tolist()})",
    ),
    "cells": (regard.visible(CELLS), f"MASKS.visible({json.dumps(CELLS.int().tolist())})"),
}
MASKS["causal & padding"] = (
    regard.causal() & regard.lengths(torch.tensor(3)),
    "MASKS.both(MASKS.causal(), MASKS.padding(3))",
)
NAMES = [name for name in NORMALIZERS if name != "gumbel"]  # which is noise
OPTIONS = [{}, {"temperature": 0.3}, {"temperature": 4.0}]


@pytest.mark.parametrize("key_width", [D, K])
def test_every_score_mask_and_normalizer_is_that_of_attend(run: Any, key_width: int) -> None:
    query, key, value = (
        torch.randn(*size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * 2
        for seed, size in enumerate([(M, D), (N, key_width), (N, V)])
    )
    cases, expected = [], []
    for (name, (score, parameters)), mask, normalize, options in product(
        scores(D, key_width).items(), MASKS, NAMES, OPTIONS
    ):
        if normalize != "sink":
            normalizer = regard.Normalizer(normalize, **options)
        else:
            normalizer = regard.Normalizer(sink=0.0, **options)
        with torch.no_grad():
            output, map = regard.attend(
                query, key, value, score=score, mask=MASKS[mask][0], normalize=normalizer,
                return_map=True,
            )  # fmt: skip
        given = {"score": name, "parameters": parameters, "normalize": normalize, **options}
        cases.append({"mask": mask, "options": given})
        expected.append((output, map.dense(), map.scores.dense()))
    masks = ", ".join(f'"{name}": {code}' for name, (_, code) in MASKS.items())
    found = run(
        f"""({{ attend, MASKS }}, {{ query, key, value, cases }}) => {{
          const masks = {{ {masks} }};
          return cases.map(({{ mask, options }}) => {{
            const {{ context, weights, scores }} =
              attend(query, key, value, {{ ...options, mask: masks[mask] }});
            return [context, weights, scores];
          }});
        }}""",
        {"query": query.tolist(), "key": key.tolist(), "value": value.tolist(), "cases": cases},
    )
    assert len(found) == len(cases) == (9 if key_width == D else 6) * 7 * 6 * 3
    for case, one, other in zip(cases, found, expected, strict=True):
        for part, tensor in zip(one, other, strict=True):
            close(part, tensor, case)


def close(found: Any, expected: Tensor, case: object = None) -> None:
    difference = (torch.tensor(found, dtype=torch.float64) - expected).abs().max()
    assert difference <= TOLERANCE, (float(difference), case)


@pytest.mark.parametrize("sink", [0.0, -1.5])
@pytest.mark.parametrize("normalize", ["softmax", "sparsemax", "entmax15", "hard"])
def test_a_sink_takes_weight_from_any_normalizer(run: Any, normalize: str, sink: float) -> None:
    rows = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    visible = torch.rand(5, 4, generator=torch.Generator().manual_seed(3)) > 0.4
    expected = regard.Normalizer(normalize, sink=sink, temperature=0.5)(rows, visible)
    found = run(
        """({ weightsOfRow }, { rows, visible, options }) =>
          rows.map((row, i) => weightsOfRow(row, visible[i], options))""",
        {
            "rows": rows.tolist(),
            "visible": visible.tolist(),
            "options": {"normalize": normalize, "sink": sink, "temperature": 0.5},
        },
    )
    close(found, expected)


@pytest.mark.parametrize("size", [1e-30, 0.0, 1e3, 1e30])
def test_extreme_scores_give_finite_weights(run: Any, size: float) -> None:
    rows = torch.tensor([[1.0, -2.0, 1.0, 0.5]], dtype=torch.float64) * size
    for normalize in NAMES:
        expected = NORMALIZERS[normalize](rows)
        found = run(
            """({ weightsOfRow }, [row, normalize]) =>
              [weightsOfRow(row, row.map(() => true), { normalize })]""",
            [rows[0].tolist(), normalize],
        )
        close(found, expected, (normalize, size))


@pytest.mark.parametrize("heads", [1, 2, 8])
def test_several_heads_are_those_of_the_layer(run: Any, heads: int) -> None:
    torch.manual_seed(1)
    layer = MultiHeadAttention(16, heads, key_dim=5, value_dim=3, bias=False).double()
    x, y, z = (torch.randn(1, *size, dtype=torch.float64) for size in ((M, 16), (N, 5), (N, 3)))
    with torch.no_grad():
        output, map = layer(x, y, z, mask=regard.causal(), return_map=True)
    parts = {
        "W_Q": layer.query_projection, "W_K": layer.key_projection,
        "W_V": layer.value_projection, "W_O": layer.output_projection,
    }  # fmt: skip
    matrices = {name: part.weight.T.tolist() for name, part in parts.items()}
    found = run(
        """({ multiHead, MASKS }, { x, y, z, layer }) => {
          const { heads, output } = multiHead(x, y, z, layer, { mask: MASKS.causal() });
          return [output, heads.map(({ weights }) => weights)];
        }""",
        {
            "x": x[0].tolist(),
            "y": y[0].tolist(),
            "z": z[0].tolist(),
            "layer": {"heads": heads, **matrices},
        },
    )
    close(found[0], output[0])
    close(found[1], map.dense()[0])


@pytest.mark.parametrize("width", [1, 6, 7])
def test_sinusoids_are_those_of_the_layer(run: Any, width: int) -> None:
    expected = PositionalEncoding(width)(torch.zeros(9, width, dtype=torch.float64))
    close(run(f"({{ sinusoids }}) => sinusoids(9, {width})", None), expected)


def test_words_are_vectors_of_their_letters(run: Any) -> None:
    words = ["Stop", "post", "간장", "공장장", "a", "é", "👍🏽", "ab"]
    spelled = [unicodedata.normalize("NFD", word.lower()) for word in words]
    letters = sorted(set("".join(spelled)))
    counts = torch.tensor([[float(word.count(each)) for each in letters] for word in spelled])
    expected = counts / counts.norm(dim=1, keepdim=True) * len(letters) ** 0.5
    close(run("({ letterVectors }, words) => letterVectors(words)", words), expected)
