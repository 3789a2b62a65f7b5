"""A page opened offline, and a small trace that has everything."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.layers import MultiHeadAttention
from regard.trace import Trace
from regard.visual.page import write

SOURCE = ["the", "agreement", "was", "signed", "."]
TARGET = ["l'", "accord", "a", "été", "signé", ".", "</s>"]


class Tab:
    """A page opened offline, with its requests and its error messages."""

    def __init__(self, browser: Any, file: Path, **context: Any) -> None:
        self.requests: list[str] = []
        self.errors: list[str] = []
        self.context = browser.new_context(
            offline=True, viewport={"width": 1200, "height": 800}, **context
        )
        self.page = self.context.new_page()
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.errors.append(message.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.goto(file.as_uri())
        self.page.wait_for_selector("regard-page[data-ready]")
        # the steps are drawn a frame later than the rest
        self.until("!document.querySelector('regard-workflow .chosen-query:empty')")
        self.outside = [url for url in self.requests if url != file.as_uri()]
        self.outside = [url for url in self.outside if url != "data:,"]  # the icon

    def sentence(self) -> str:
        """The description of the selection, once the page has drawn."""
        self.settle()
        return self.page.locator("regard-page .sentence").inner_text()

    def until(self, expression: str) -> None:
        """Wait until an expression is true; the page's policy forbids Playwright's own way."""
        for _ in range(200):
            if self.page.evaluate(expression):
                return
            self.page.wait_for_timeout(25)
        raise AssertionError(f"never true: {expression}")

    def settle(self) -> None:
        self.page.evaluate(
            "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Tab]]:
    tabs: list[Tab] = []

    def opened(traces: Any, *, language: str = "en", **context: Any) -> Tab:
        file = write(traces, tmp_path / f"{len(tabs)}.html", language=language)
        tabs.append(Tab(browser, file, **context))
        return tabs[-1]

    yield opened
    for tab in tabs:
        tab.context.close()
        assert tab.outside == []
        assert tab.errors == []


@pytest.fixture
def aligned() -> Trace:
    """One head of 7 × 5: `accord` attends 0.82 to `agreement`."""
    weights = torch.full((7, 5), 0.02)
    weights[1] = torch.tensor([0.1, 0.82, 0.04, 0.02, 0.02])
    for row, column in ((0, 0), (2, 2), (3, 2), (4, 3), (5, 4), (6, 4)):
        weights[row, column] = 0.92
    return Trace.of_maps({"cross": weights}, queries=TARGET, keys=SOURCE, text="the agreement")


@pytest.fixture
def recorded() -> Trace:
    """Two layers of attention with two heads of 3, really recorded."""
    torch.manual_seed(0)
    first, second = MultiHeadAttention(6, heads=2), MultiHeadAttention(6, heads=2)
    model = torch.nn.ModuleDict({"first": first, "second": second})
    with torch.no_grad(), regard.capture(model) as trace:
        hidden = first(torch.randn(1, 5, 6), mask=regard.causal())
        second(hidden)
    return trace.label(source=SOURCE)
