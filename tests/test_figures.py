"""Live figures of the documentation show what `regard` computes, in both languages."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import torch
from torch import Tensor

import regard
from docs.tools.figures import scripts
from docs.tools.pages import ROOT

DOCS = ROOT / "docs"
ELEMENT = re.compile(r'<attention-figure preset="(\w+)"></attention-figure>')
CHAPTERS = sorted(page for page in DOCS.glob("guide/*.md") if not page.name.startswith("index."))
TEXTS = [page.read_text("utf-8") for page in DOCS.glob("**/*.md")]
PRESETS = sorted({name for text in TEXTS for name in ELEMENT.findall(text)})
SCORES = {
    "dot": lambda q, k, n: regard.Dot(),
    "scaled_dot": lambda q, k, n: regard.ScaledDot(),
    "general": lambda q, k, n: regard.General(q, k),
    "biased_general": lambda q, k, n: regard.BiasedGeneral(q, k),
    "activated_general": lambda q, k, n: regard.ActivatedGeneral(q, k),
    "additive": lambda q, k, n: regard.Additive(q, k, n),
    "concat": lambda q, k, n: regard.Concat(q, k, n),
    "cosine": lambda q, k, n: regard.Cosine(),
    "location": lambda q, k, n: regard.Location(q, n),
}
COMPUTED = """() => {
  const figure = document.querySelector("attention-figure");
  const { inputs, layer, heads, options, found } = figure.computed;
  const { score, normalize, temperature, parameters } = options;
  return { inputs, layer, heads, score, normalize, temperature, parameters, state: figure.state,
    weights: found.heads.map(({ weights }) => weights),
    contexts: found.heads.map(({ context }) => context), output: found.output ?? null };
}"""


class Figure:
    """A page with one figure, opened from disk."""

    def __init__(self, browser: Any, file: Path, **context: Any) -> None:
        self.errors: list[str] = []
        self.context = browser.new_context(offline=True, **context)
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.errors.append(message.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.goto(file.as_uri())
        self.page.wait_for_selector("attention-figure[data-ready]")

    def check(self) -> dict[str, Any]:
        """Compare what is computed with `regard.attend`, and what is shown with that."""
        found = self.page.evaluate(COMPUTED)
        weights, contexts, output = expected(found)
        near(found["weights"], weights)
        near(found["contexts"], contexts)
        if output is not None:
            near(found["output"], output)
        head = min(found["state"]["head"], found["heads"] - 1)
        cells = self.page.locator("attention-figure .map tbody td").all_inner_texts()
        shown = [0.0 if cell in ("", "−∞", "hidden", "가려짐") else number(cell) for cell in cells]
        near(shown, weights[head].flatten(), 0.006)
        rows = self.page.locator("attention-figure .answer > .part >> nth=1 >> tr")
        last = contexts[head] if found["layer"] is None or "W_O" not in found["layer"] else output
        width = min(last.shape[-1], 8)
        for row, vector in zip(rows.all(), last, strict=True):
            texts = [cell for cell in row.locator("td").all_inner_texts() if cell != "…"]
            near(
                [number(cell) for cell in texts], vector[:width], 6e-3 * max(1, vector.abs().max())
            )
        return dict(found)


def number(text: str) -> float:
    return 0.0005 if text == "<0.001" else float(text.replace("−", "-"))


def near(found: Any, expected: Tensor, tolerance: float = 1e-5) -> None:
    difference = torch.tensor(found, dtype=torch.float64) - expected
    assert difference.abs().max() <= tolerance, difference


def mask_of(state: dict[str, Any], queries: int, keys: int) -> Any:
    def ids(count: int) -> Tensor:
        names = state["ids"].split()
        return torch.tensor([names.index(names[min(i, len(names) - 1)]) for i in range(count)])

    lengths = state.get("lengths")
    masks: dict[str, Callable[[], Any]] = {
        "none": lambda: None,
        "causal": regard.causal,
        "window": lambda: regard.window(state["left"], state["right"]),
        "padding": lambda: regard.lengths(
            torch.tensor(
                lengths[state["sample"]]
                if lengths
                else keys
                if state["length"] is None
                else state["length"]
            )
        ),
        "segments": lambda: regard.segments(ids(queries), ids(keys)),
        "cells": lambda: regard.visible(
            torch.tensor([[bool(cell(state, i, j)) for j in range(keys)] for i in range(queries)])
        ),
    }
    return masks[state["mask"]]()


def cell(state: dict[str, Any], i: int, j: int) -> int:
    rows = state.get("cells") or []
    return int(rows[i][j]) if i < len(rows) and j < len(rows[i]) else 1


def expected(found: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor | None]:
    """Weights and contexts of each head, and the output, of the inputs of a figure."""
    x, y, z = (torch.tensor(found["inputs"][side]).double() for side in ("query", "key", "value"))
    layer = {name: torch.tensor(each).double() for name, each in (found["layer"] or {}).items()}
    heads = found["heads"]
    if layer:
        x, y, z = x @ layer["W_Q"], y @ layer["W_K"], z @ layer["W_V"]
    q, k, v = (torch.stack(each.chunk(heads, -1)) for each in (x, y, z))  # (heads, length, width)
    parameters = {
        re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", name): torch.tensor(each).double()
        for name, each in (found["parameters"] or {}).items()
    }
    hidden = len(parameters.get("vector", parameters.get("weight", k[0])))
    score = SCORES[found["score"]](q.shape[-1], k.shape[-1], hidden).double()
    score.load_state_dict(parameters)
    name = "softmax" if found["normalize"] == "sink" else found["normalize"]
    sink = 0.0 if found["normalize"] == "sink" else None
    normalize = regard.Normalizer(name, temperature=found["temperature"], sink=sink)
    mask = mask_of(found["state"], q.shape[-2], k.shape[-2])
    with torch.no_grad():
        contexts, map = regard.attend(
            q, k, v, score=score, mask=mask, normalize=normalize, return_map=True
        )
    joined = torch.cat([*contexts], -1)
    return map.dense(), contexts, joined @ layer["W_O"] if "W_O" in layer else None


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    folder = tmp_path_factory.mktemp("figures")
    for name, code in scripts().items():
        (folder / name).write_text(code, "utf-8")

    def write(preset: str, language: str) -> Path:
        file = folder / f"{preset}.{language}.html"
        file.write_text(
            f'<!doctype html><html lang="{language}"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width"><title>figure</title>'
            '<link rel="icon" href="data:,"><style>html { color-scheme: light dark; '
            "font-size: 125%; } body { margin: 8px; }</style></head><body><main><h1>A figure</h1>"
            f'<attention-figure preset="{preset}"></attention-figure></main>'
            '<script src="figure.js"></script></body></html>',
            "utf-8",
        )
        return file

    return write


@pytest.fixture
def open_figure(browser: Any, pages: Callable[[str, str], Path]) -> Iterator[Callable[..., Figure]]:
    opened: list[Figure] = []

    def open_one(preset: str, language: str = "en", **context: Any) -> Figure:
        opened.append(Figure(browser, pages(preset, language), **context))
        return opened[-1]

    yield open_one
    for figure in opened:
        figure.context.close()
        assert figure.errors == []


def test_every_chapter_has_a_figure_the_same_in_both_languages() -> None:
    assert len(CHAPTERS) >= 2 * 15
    for page in CHAPTERS:
        assert len(ELEMENT.findall(page.read_text("utf-8"))) == 1, page
    for korean in DOCS.glob("**/*.ko.md"):
        english = korean.with_name(korean.name.replace(".ko.md", ".md"))
        figures = [ELEMENT.findall(page.read_text("utf-8")) for page in (korean, english)]
        assert figures[0] == figures[1], korean


@pytest.mark.parametrize("preset", PRESETS)
def test_a_figure_begins_with_what_regard_computes(
    open_figure: Callable[..., Figure], preset: str
) -> None:
    assert open_figure(preset).check()["weights"]


@pytest.mark.slow
@pytest.mark.parametrize("language", ["en", "ko"])
@pytest.mark.parametrize("preset", PRESETS)
def test_a_figure_shows_what_regard_computes(
    open_figure: Callable[..., Figure], preset: str, language: str
) -> None:
    figure = open_figure(preset, language)
    first = figure.check()

    def menu(name: str) -> Any:
        return figure.page.locator(f"attention-figure select[name={name}]")

    scores = [
        each.get_attribute("value")
        for each in menu("score").locator("option:not([disabled])").all()
    ]
    for name in scores:
        menu("score").select_option(name)
        assert figure.check()["score"] == name
    for name in ("causal", "window", "segments", "padding", "cells"):
        menu("mask").select_option(name)
        assert figure.check()["state"]["mask"] == name
    for name in ("sparsemax", "entmax15", "hard", "sigmoid", "sink"):
        menu("normalize").select_option(name)
        assert figure.check()["normalize"] == name
    figure.page.locator("attention-figure [name=temperature]").fill("0.7")
    changed = figure.check()
    assert changed["temperature"] == pytest.approx(2.014)
    figure.page.locator("attention-figure td button").nth(0).press("Enter")  # hide or show
    assert figure.check()["weights"] != changed["weights"]
    (address,) = parse_qs(urlsplit(figure.page.url).query)[preset]
    assert json.loads(address)["temperature"] == pytest.approx(2.014)
    before = figure.check()
    figure.page.reload()
    figure.page.wait_for_selector("attention-figure[data-ready]")
    assert figure.check() == before
    figure.page.locator("attention-figure .buttons button").first.click()
    assert figure.check() == first
    assert urlsplit(figure.page.url).query == ""


def test_words_are_typed_and_numbers_changed(open_figure: Callable[..., Figure]) -> None:
    figure = open_figure("student")
    figure.page.locator("attention-figure [name=text]").fill("나는 학생 입니다")
    assert figure.check()["inputs"]["labels"][0] == ["나는", "학생", "입니다"]
    figure.page.locator("attention-figure [name=text]").fill(" ")
    assert (
        figure.page.locator("attention-figure .problem").inner_text() == "Type at least one word."
    )
    assert len(figure.check()["weights"][0]) == 3
    figure = open_figure("fruits")
    price = figure.page.get_by_label("Values, row 1, column 1")
    price.fill("9")
    found = figure.check()
    assert found["inputs"]["value"][0] == [9]
    price.fill("")  # nothing to compute with
    assert figure.check() == found
    figure = open_figure("lengths")
    assert [len([w for w in row if w]) for row in figure.check()["weights"][0]] == [5] * 8
    figure.page.locator("attention-figure [name=sample]").select_option(index=2)
    assert [len([w for w in row if w]) for row in figure.check()["weights"][0]] == [3] * 8
    figure.page.locator("attention-figure [name=lengths]").fill("5 8 6")
    assert [len([w for w in row if w]) for row in figure.check()["weights"][0]] == [6] * 8


def test_the_examples_of_the_chapters_are_what_the_chapters_say(
    open_figure: Callable[..., Figure],
) -> None:
    def row(preset: str, query: int = 0) -> list[float]:
        weights = open_figure(preset).check()["weights"][0][query]
        return [round(weight, 2) for weight in weights]

    assert row("fruits") == [0.87, 0.02, 0.12]
    assert row("states") == [0.04, 0.84, 0.11]
    assert row("row") == [0.48, 0.32, 0.18, 0.02]
    assert row("sink") == [0.02, 0.02, 0.02, 0.02]
    assert row("how")[0] > 0.7  # how → comment
    assert row("how")[-1] < 0.1  # and not journée
    assert row("animal", 10)[2] == pytest.approx(0.64, abs=0.01)  # it → animal
    assert max(row("slots")) == row("slots")[2]


def test_the_steps_follow_the_figure_and_w_q_is_changed(
    open_figure: Callable[..., Figure],
) -> None:
    figure = open_figure("films")
    page = figure.page
    page.locator("attention-figure summary").last.click()
    chosen = page.locator("regard-workflow .chosen-query")
    page.locator("regard-workflow .step.context").wait_for()
    assert chosen.inner_text().startswith("child")
    page.locator("attention-figure #query-1").click()
    page.locator("regard-workflow .chosen-query", has_text="adult").wait_for()
    cell = page.get_by_label("W_Q, row 2, column 1")
    cell.fill("5")
    cell.press("Enter")
    found = figure.check()
    assert found["layer"]["W_Q"][1][0] == 5
    shown = page.locator("regard-workflow .scaled td:last-child").first
    score = (
        torch.tensor(found["inputs"]["query"][1]).float()
        @ torch.tensor(found["layer"]["W_Q"]).float()
    )
    key = (
        torch.tensor(found["inputs"]["key"][0]).float()
        @ torch.tensor(found["layer"]["W_K"]).float()
    )
    page.wait_for_timeout(100)
    assert number(shown.inner_text()) == pytest.approx(float(score @ key) / 2**0.5, rel=5e-3)


@pytest.mark.parametrize("preset", PRESETS)
def test_nothing_of_a_figure_overflows_on_a_phone(
    open_figure: Callable[..., Figure], preset: str
) -> None:
    figure = open_figure(preset, "ko", viewport={"width": 400, "height": 800})
    figure.page.locator("attention-figure summary").last.click()
    figure.page.locator("regard-workflow .step").first.wait_for()
    width = figure.page.evaluate("document.documentElement.scrollWidth")
    assert width <= 400


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("preset", ["films", "nodes", "lengths"])
def test_no_figure_has_a_serious_accessibility_violation(
    open_figure: Callable[..., Figure], preset: str, scheme: str, axe: str
) -> None:
    figure = open_figure(preset, color_scheme=scheme)
    figure.page.locator("attention-figure summary").last.click()
    figure.page.locator("regard-workflow .step").first.wait_for()
    figure.page.evaluate(axe)
    result = figure.page.evaluate("axe.run()")
    serious = [
        (each["id"], [node["html"][:150] for node in each["nodes"][:3]])
        for each in result["violations"]
        if each["impact"] in ("serious", "critical")
    ]
    assert serious == []
