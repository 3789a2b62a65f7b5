"""The page in a real browser: linked views, keyboard, both languages, no network, no errors."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.layers import MultiHeadAttention
from regard.trace import Call, Missed, Trace
from regard.visual.page import document, iframe

WORDS = ["the", "agreement", "was", "signed", "."]
WORD = "regard-strip .words.{} .word >> nth={}"


def test_pointing_at_a_word_describes_what_it_attends_to(
    open_page: Callable, aligned: Trace
) -> None:
    tab = open_page(aligned)
    tab.page.hover(WORD.format("query", 1))
    assert tab.sentence() == "accord attends 0.82 to agreement"
    tab.page.hover(WORD.format("key", 2))
    assert tab.sentence().startswith("was receives 0.92 from a")
    tab.page.mouse.move(5, 5)
    assert tab.sentence() == "Point at a word or a cell."


def test_a_click_pins_a_word_and_escape_unpins_it(open_page: Callable, aligned: Trace) -> None:
    tab = open_page(aligned)
    tab.page.click(WORD.format("query", 1))
    tab.page.hover(WORD.format("query", 4))
    assert tab.sentence().startswith("accord attends 0.82 to agreement (pinned")
    chosen = tab.page.locator('[role=option][aria-selected="true"]')
    assert chosen.all_inner_texts() == ["accord"]
    tab.page.locator("regard-strip .words.query").press("Escape")
    assert "pinned" not in tab.sentence()


def test_the_keyboard_alone_reaches_a_cell_a_word_and_a_head(
    open_page: Callable, aligned: Trace, recorded: Trace
) -> None:
    tab = open_page(aligned)
    tab.page.locator("regard-heatmap .stage").focus()
    for key in ("ArrowDown", "ArrowRight", "Enter"):
        tab.page.keyboard.press(key)
    assert tab.sentence().startswith("accord attends 0.82 to agreement (pinned")
    tab.page.keyboard.press("Escape")
    tab.page.locator("regard-strip .words.key").focus()
    tab.page.keyboard.press("End")
    assert tab.sentence().startswith(". receives 0.92 from")
    tab.page.locator("regard-graph .stage").focus()
    tab.page.keyboard.press("ArrowRight")
    assert "attends" in tab.sentence()

    heads = open_page(recorded)
    heads.page.locator("regard-heads .thumb[tabindex='0']").focus()
    heads.page.keyboard.press("ArrowRight")
    heads.page.keyboard.press("Enter")
    heads.settle()
    pressed = heads.page.locator("regard-heads [aria-pressed=true]")
    assert pressed.count() == 1
    assert "head 1" in pressed.get_attribute("aria-label")
    heads.page.keyboard.press("ArrowLeft")
    heads.page.keyboard.press("Space")
    heads.until("document.querySelectorAll('regard-heads [aria-pressed=true]').length === 2")
    query = "document.querySelector('regard-workflow .chosen-query').innerText"
    heads.until(f"{query}.includes('mean of heads 0, 1')")


def test_the_share_decides_how_many_links_there_are(open_page: Callable, aligned: Trace) -> None:
    tab = open_page(aligned)
    row = tab.page.locator("regard-table tr[data-query='1'] td")
    tab.settle()
    assert row.inner_text() == "accord attends 0.82 to agreement"
    slider = tab.page.locator("#regard-share")
    slider.focus()
    slider.press("End")
    tab.settle()
    assert row.inner_text() == (
        "accord attends 0.82 to agreement, 0.10 to the, 0.04 to was, 0.02 to signed, 0.02 to ."
    )


def test_zooming_reaches_single_cells_of_a_long_map(open_page: Callable) -> None:
    query, key = torch.randn(2, 1, 2503, 4)
    attended = regard.attend(query * 2, key, key, return_map=True)
    tab = open_page(Trace([Call("long", attended.map, "source", "source", {"path": "fused"})]))
    tab.page.locator("regard-heatmap .stage").focus()
    for key_name in ["ArrowDown"] * 3 + ["+"] * 20:
        tab.page.keyboard.press(key_name)
    tab.settle()
    assert tab.page.evaluate("document.querySelector('regard-heatmap').window.cell") == 56
    top = attended.map.topk(1)
    best, column = top.values[0, 3, 0].item(), top.indices[0, 3, 0].item()
    found = tab.page.evaluate(f"document.querySelector('regard-page').view.map.cell(3, {column})")
    assert found == pytest.approx(best, rel=1e-3)
    raster = "document.querySelector('regard-page').view.map.raster"
    (cell,) = tab.page.evaluate(f"[...{raster}(3, 4, {column}, {column} + 1, 1, 1)]") or [None]
    assert cell == pytest.approx(best, rel=1e-3)


@pytest.mark.slow
def test_a_thousand_tokens_of_four_layers_open_quickly_and_have_every_weight(
    open_page: Callable, tmp_path: Path
) -> None:
    generator = torch.Generator().manual_seed(3)
    calls = []
    for layer in range(4):
        query, key = torch.randn(2, 8, 1007, 32, generator=generator)
        map = regard.attend(query * 3, key, key, mask=regard.causal(), return_map=True).map
        calls.append(Call(f"layers.{layer}.self_attn", map, "source", "source", {"path": "fused"}))
    tab = open_page(Trace(calls))
    assert (tmp_path / "0.html").stat().st_size < 25e6
    assert tab.page.evaluate("performance.now()") < 10_000  # ms since navigation; 640 on two cores
    view = "document.querySelector('regard-page').view"
    layer, *heads = tab.page.evaluate(f"[{view}.call, ...{view}.heads]")
    for row in (3, 900):
        found = tab.page.evaluate(
            f"Array.from({{length: 1007}}, (_, j) => {view}.map.cell({row}, j))"
        )
        expected = calls[layer].map[:, row][heads].mean(0).tolist()
        assert found == pytest.approx(expected, abs=1e-3)


def test_the_drawn_tiles_are_the_largest_of_what_they_cover(
    open_page: Callable, aligned: Trace
) -> None:
    tab = open_page(aligned)
    view = "document.querySelector('regard-page').view"
    tiles = tab.page.evaluate(f"[...{view}.map.raster(0, 7, 0, 5, 2, 2)]")
    dense = aligned["cross"].map.dense()[0]
    rows = [[i for i in range(7) if i * 2 // 7 == band] for band in (0, 1)]
    columns = [[j for j in range(5) if j * 2 // 5 == band] for band in (0, 1)]
    expected = [dense[rows[a]][:, columns[b]].max().item() for a in (0, 1) for b in (0, 1)]
    assert tiles == pytest.approx(expected, abs=1e-4)


def test_the_workflow_shows_every_step_from_x_to_w_o(open_page: Callable) -> None:
    torch.manual_seed(0)
    layer, x = MultiHeadAttention(6, heads=2), torch.randn(1, 5, 6)
    with torch.no_grad(), regard.capture(layer, inputs=True) as trace:
        output = layer(x, mask=regard.causal())[0, 3]
    tab = open_page(trace.label(source=["the", "agreement", "was", "signed", "."]))
    tab.page.click(WORD.format("query", 3))
    tab.settle()
    head = int(tab.page.locator("regard-workflow .chosen-query").inner_text()[-1])

    def projected(part: torch.nn.Linear) -> torch.Tensor:
        made = x[0] @ part.weight.T + part.bias
        return made[:, 3 * head : 3 * head + 3].detach()

    q, k, v = map(projected, (layer.query_projection, layer.key_projection, layer.value_projection))
    products = q[3] @ k[:4].T
    scores = products / 3**0.5
    weights = scores.softmax(-1)
    best = int(weights.argmax())

    steps = tab.page.locator("regard-workflow .step")
    titles = steps.locator("h3").all_inner_texts()
    assert [int(title.split(". ")[0]) for title in titles] == [*range(1, 12)]

    def shown(step: str, kind: str) -> list[list[float]]:
        place = tab.page.locator(f"regard-workflow .step.{step} {kind} .numbers")
        return [*map(_numbers, place.all_inner_texts())]

    def cells(step: str) -> list[list[str]]:
        lines = tab.page.locator(f"regard-workflow .step.{step} tbody tr").all()
        return [line.locator("th, td").all_inner_texts() for line in lines]

    def column(step: str, place: int) -> list[float]:
        return [_number(line[place]) for line in cells(step) if line[0] in WORDS]

    near = {"rel": 5e-3, "abs": 1e-3}
    assert shown("input", ".query")[0] == pytest.approx(x[0, 3, :4].tolist(), **near)
    assert shown("input", ".key")[1] == pytest.approx(x[0, 1, :4].tolist(), **near)
    weight = layer.query_projection.weight.T[:, 3 * head : 3 * head + 3]
    first = tab.page.locator("regard-workflow .projections .cells").first.locator("input")
    assert [float(each.input_value()) for each in first.all()] == pytest.approx(
        weight.flatten().tolist(), **near
    )
    assert shown("projections", ".query")[0] == pytest.approx(q[3].tolist(), **near)
    keys, values = shown("projections", ".key")[:5], shown("projections", ".key")[5:]
    assert keys == [pytest.approx(row.tolist(), **near) for row in k]
    assert values == [pytest.approx(row.tolist(), **near) for row in v]
    terms = [float(line[-1].replace("−", "-")) for line in cells("pair")]
    exact = (q[3] * k[best]).tolist()
    assert terms == pytest.approx([*exact, sum(exact)], **near)
    pair = tab.page.locator("regard-workflow .result").inner_text().replace("−", "-")
    assert float(pair.split("=")[-1]) == pytest.approx(products[best].item(), rel=5e-3)
    assert column("allScores", 1) == pytest.approx((q[3] @ k.T).tolist(), **near)
    every = (q[3] @ k.T / 3**0.5).tolist()
    assert column("scaled", 2) == pytest.approx(every, **near)
    assert column("mask", 1) == pytest.approx(every, **near)
    assert [line[2] for line in cells("mask")] == ["0"] * 4 + ["−∞"]  # the last key is hidden
    assert [line[3] for line in cells("mask")][4] == "−∞"
    assert "hidden from this query: 1" in tab.page.locator("regard-workflow .mask").inner_text()
    powers = scores.exp()
    assert column("softmax", 2) == pytest.approx([*powers.tolist(), 0], **near)
    assert column("softmax", 3) == pytest.approx([*weights.tolist(), 0], abs=6e-3)
    assert _number(cells("softmax")[-1][2]) == pytest.approx(powers.sum().item(), **near)
    rows = shown("weighted", "td:last-child")
    assert rows[:4] == [pytest.approx(row, **near) for row in (weights[:, None] * v[:4]).tolist()]
    assert shown("context", ".strip")[0] == pytest.approx((weights @ v[:4]).tolist(), **near)
    assert shown("output", ".projected")[0] == pytest.approx(output[:4].tolist(), **near)


def _number(text: str) -> float:
    return float(text.replace("−", "-")) if text != "−∞" else -math.inf


def test_a_number_of_w_q_is_changed_and_all_that_follows(open_page: Callable) -> None:
    torch.manual_seed(0)
    layer, x = MultiHeadAttention(6, heads=2), torch.randn(1, 5, 6)
    with torch.no_grad(), regard.capture(layer, inputs=True) as trace:
        layer(x, mask=regard.causal())
    tab = open_page(trace.label(source=WORDS))
    tab.page.click(WORD.format("query", 3))
    tab.settle()
    head = int(tab.page.locator("regard-workflow .chosen-query").inner_text()[-1])
    matrices = {"W_Q": layer.query_projection, "W_K": layer.key_projection}
    matrices["W_V"] = layer.value_projection
    for name, projection in matrices.items():
        cell = tab.page.get_by_label(f"{name}, row 2, column 3")
        cell.fill("2.5")
        cell.press("Enter")
        tab.settle()
        with torch.no_grad():
            projection.weight[3 * head + 2, 1] = 2.5
            output, map = layer(x, mask=regard.causal(), return_map=True)
        view = "document.querySelector('regard-page').view"
        tab.until(f"{view}.map.cells[15].toFixed(3) === '{map[0, head, 3, 0]:.3f}'")
        cells = tab.page.evaluate(f"[...{view}.map.cells]")
        assert cells == pytest.approx(map[0, head].flatten().tolist(), abs=1e-3)
        shown = tab.page.locator("regard-workflow .output .projected .numbers")
        tab.settle()
        assert _numbers(shown.inner_text()) == pytest.approx(
            output[0, 3, :4].tolist(), rel=1e-2, abs=2e-3
        )
    tab.page.get_by_role("button", name="Back to the recorded numbers").click()
    tab.settle()
    before = trace.of(0).calls[0].map[head]
    tab.until(f"{view}.map.cells[15].toFixed(3) === '{before[3, 0]:.3f}'")


def test_missing_steps_are_explained(open_page: Callable, recorded: Trace, aligned: Trace) -> None:
    written = "document.querySelector('regard-workflow').textContent.includes('{}')"
    tab = open_page(recorded)
    tab.until(written.format("regard.capture(model, inputs=True) records it"))
    assert "not part" not in tab.page.locator("regard-workflow").inner_text()  # left out
    tab = open_page(aligned, language="ko")
    tab.until(written.format("쿼리, 키, 밸류가 기록되지 않아"))


def _numbers(text: str) -> list[float]:
    return [float(part.replace("−", "-")) for part in text.replace("…", "").split()]


def test_an_additive_score_is_shown_from_state_to_output(open_page: Callable) -> None:
    torch.manual_seed(1)
    model = regard.models.build("bahdanau", "tiny", source_vocabulary=7, target_vocabulary=11)
    with torch.no_grad(), regard.capture(model.eval()) as trace:
        model.decode(model.encode(torch.tensor([[4, 5, 6]])), torch.tensor([[1, 4, 5, 6, 7]]))
    trace = trace.label(source=["x", "y", "z"], target=list("abcde")).stitched().of(0)
    outputs = {"target": [[["next", 0.75], ["other", 0.125]]] * 5}
    tab = open_page(Trace(trace.calls, trace.tokens, {"outputs": outputs}))
    tab.page.click(WORD.format("query", 4))
    tab.settle()
    titles = tab.page.locator("regard-workflow .steps h3").all_inner_texts()
    assert [title[0] for title in titles] == ["1", "2", "3", "4", "5", "6", "7", "8"]
    assert "W_Q" not in tab.page.locator("regard-workflow").inner_text()  # it has W₁ and W₂
    score, inputs = model.decoder.attention.score, trace.calls[0].inputs
    left = score.query_weight @ inputs.query[..., 4, :].flatten()
    right = inputs.value.reshape(3, -1) @ score.key_weight.T
    bent = (left + right).tanh()
    scores = (bent @ score.vector).detach()
    best = int(scores.argmax())
    terms = tab.page.locator("regard-workflow .pair tbody tr").all()[:4]
    found = [[_number(each) for each in line.locator("td").all_inner_texts()][1:] for line in terms]
    columns = (left, right[best], left + right[best], bent[best], score.vector)
    columns = (*columns, score.vector * bent[best])
    expected = torch.stack(columns, -1)[:4].tolist()
    assert found == [pytest.approx(row, rel=1e-2, abs=1e-3) for row in expected]
    shown = tab.page.locator("regard-workflow .result").inner_text().split("=")[-1]
    assert float(shown.replace("−", "-")) == pytest.approx(scores[best].item(), rel=1e-2, abs=1e-3)
    assert "next" in tab.page.locator("regard-workflow .steps .ranked").inner_text()


def test_a_general_score_is_shown_as_in_the_guide_with_its_factor_in_w(open_page: Callable) -> None:
    torch.manual_seed(1)
    sizes = {"source_vocabulary": 7, "target_vocabulary": 11, "hidden": 5, "embedding": 3}
    model = regard.models.build("luong", **sizes, score="general").eval()
    with torch.no_grad(), regard.capture(model) as trace:
        model.decode(model.encode(torch.tensor([[4, 5, 6]])), torch.tensor([[1, 4, 5, 6, 7]]))
    trace = trace.label(source=["x", "y", "z"], target=list("abcde")).stitched().of(0)
    tab = open_page(trace)
    tab.page.click(WORD.format("query", 4))
    tab.settle()
    text = tab.page.locator("regard-workflow").inner_text()
    assert "qᵀWk" in text
    assert "×" not in tab.page.locator("regard-workflow .result").inner_text()
    assert tab.page.locator("regard-workflow .scaled").count() == 0
    score, inputs = model.decoder.attention.score, trace.calls[0].inputs
    matrix = score.scale * score.weight
    exact = inputs.query[..., 4, :].flatten() @ matrix @ inputs.key.reshape(3, -1).T
    lines = tab.page.locator("regard-workflow .allScores tbody tr td").all_inner_texts()
    found = [_number(each) for each in lines]
    assert found == pytest.approx(exact.tolist(), rel=1e-2, abs=1e-3)


def test_what_was_not_recorded_is_listed(open_page: Callable, aligned: Trace) -> None:
    assert open_page(aligned).page.locator("regard-page .missed").count() == 0
    aligned.missed = [Missed(f"layers.{n}", "LinearAttention", "<b>no map</b>") for n in range(3)]
    for language, text in (("en", "Not recorded: 3 module(s)"), ("ko", "모듈 3개")):
        tab = open_page(aligned, language=language)
        note = tab.page.locator("regard-page .missed")
        assert text in note.locator("summary").inner_text()
        note.locator("summary").click()
        assert note.locator("li").nth(2).inner_text() == "layers.2 (LinearAttention): <b>no map</b>"


def test_of_a_single_map_there_is_nothing_to_choose(
    open_page: Callable, aligned: Trace, recorded: Trace
) -> None:
    sections = "[...document.querySelectorAll('regard-views > section')].map((s) => s.classList[0])"
    single = ["strip", "heatmap", "table", "toolbar", "workflow", "graph"]
    tab = open_page(aligned)
    assert tab.page.evaluate(sections) == single
    assert tab.page.locator("#regard-layer").count() == 0
    tab.until("document.querySelector('.chosen-query').textContent.endsWith(' · cross')")
    tab = open_page(recorded)
    several = ["strip", "heatmap", "heads", "toolbar", "workflow", "graph", "table"]
    assert tab.page.evaluate(sections) == several
    assert tab.page.locator("#regard-layer option").count() == 2


def test_heads_are_sorted_by_what_they_do(open_page: Callable) -> None:
    heads = torch.stack([torch.full((5, 5), 0.2), torch.eye(5), torch.eye(5)[[0] * 5]])
    tab = open_page(Trace.of_maps({"layer": heads}, queries="abcde"))
    names = tab.page.locator("regard-heads .thumb")
    for order, first in (("diagonal", "head 1"), ("sink", "head 2"), ("byLayer", "head 0")):
        tab.page.select_option("#regard-sort", order)
        tab.until(f"document.querySelector('regard-heads .thumb').ariaLabel.includes('{first}')")
    tab.page.select_option("#regard-sort", "entropy")
    tab.until("document.querySelectorAll('regard-heads .thumb')[2].ariaLabel.includes('head 0')")
    assert names.count() == 3


def test_the_slider_over_checkpoints_shows_how_it_was_learned(
    open_page: Callable, aligned: Trace
) -> None:
    even = torch.full((7, 5), 0.2)
    tokens = aligned.tokens
    before = Trace.of_maps({"cross": even}, queries=tokens["target"], keys=tokens["source"])
    tab = open_page({"step 100": before, "step 200": aligned})
    tab.page.click(WORD.format("query", 1))
    assert "0.82" in tab.sentence()
    slider = tab.page.locator("#regard-checkpoint")
    assert slider.get_attribute("aria-valuetext") == "step 200"
    slider.focus()
    slider.press("ArrowLeft")
    assert slider.get_attribute("aria-valuetext") == "step 100"
    tab.until("document.querySelector('.sentence').textContent.includes('accord attends 0.20')")


def test_the_interface_is_available_in_korean(open_page: Callable, aligned: Trace) -> None:
    tab = open_page(aligned, language="ko")
    assert tab.page.locator("h2").all_inner_texts()[:2] == ["연결", "어텐션 맵"]
    assert tab.page.evaluate("document.documentElement.lang") == "ko"
    tab.page.hover(WORD.format("query", 1))
    assert tab.sentence() == "accord → agreement: 0.82 주목"
    tab.page.select_option("#regard-language", "en")
    assert tab.page.locator("h2").first.inner_text() == "Links"


def test_both_languages_have_the_same_texts() -> None:
    code = (Path(regard.__file__).parent / "visual/page/web/texts.js").read_text(encoding="utf-8")
    english, korean = code.split("const NAMES")[0].split("  ko: {")
    names = [
        {line.split(":")[0].strip() for line in half.splitlines() if line.startswith("    ")}
        for half in (english, korean.split("};")[0])
    ]
    assert names[0] == names[1]


def test_the_title_names_model_input_and_output(open_page: Callable, aligned: Trace) -> None:
    about = {"model": "runs/en-fr", "text": "the agreement", "translation": "l'accord"}
    tab = open_page(Trace(aligned.calls, aligned.tokens, about))
    assert tab.page.title() == "the agreement → l'accord · Attention map: runs/en-fr"
    assert tab.page.locator("h1").inner_text() == "Attention map: runs/en-fr"
    assert tab.page.locator("header .text").inner_text() == "the agreement → l'accord"


def test_settings_come_after_the_views_that_they_change(
    open_page: Callable, aligned: Trace
) -> None:
    tab = open_page(aligned)
    places = [
        tab.page.locator(name).bounding_box()["y"]
        for name in ("h1", "regard-strip", "regard-heatmap", ".toolbar")
    ]
    assert places == sorted(places)


def test_a_page_opens_on_an_informative_head(open_page: Callable) -> None:
    sink, even = torch.eye(5)[[0] * 5], torch.full((5, 5), 0.2)
    far = torch.eye(5)[[3, 4, 0, 1, 2]]
    maps = {"a": torch.stack([even, far * 0.9 + 0.02]), "b": torch.stack([sink, torch.eye(5)])}
    tab = open_page(Trace.of_maps(maps, queries="abcde"))
    assert tab.page.locator("regard-workflow .chosen-query").inner_text() == "c · a · head 1"


def test_marks_of_word_starts_are_not_shown(open_page: Callable) -> None:
    tokens = ["▁low", "er", "▁", "Ġcat", "a▁b"]
    tab = open_page(Trace.of_maps({"a": torch.eye(5)}, queries=tokens))
    words = tab.page.locator("regard-strip .words.query .word").all_inner_texts()
    assert words == ["low", "er", "␣", "cat", "a b"]


def test_the_scale_can_follow_the_data(open_page: Callable) -> None:
    tab = open_page(Trace.of_maps({"a": torch.full((5, 5), 0.2)}, queries="abcde"))
    assert tab.page.locator("regard-scale").inner_text().split() == ["0", "1"]
    tab.page.select_option("#regard-scaleRange", "data")
    tab.settle()
    assert tab.page.locator("regard-scale").inner_text().split() == ["0", "0.20"]


def test_hostile_tokens_are_shown_as_text(open_page: Callable) -> None:
    evil = ["<img src=x onerror=alert(1)>", "</script>", "", " ", "\n", "سلام"]
    tab = open_page(Trace.of_maps({"a": torch.eye(6)}, queries=evil, text=evil[0]))
    words = tab.page.locator("regard-strip .words.query .word").all_inner_texts()
    assert words == [evil[0], evil[1], "∅", "␣", "␊", evil[5]]
    assert tab.page.locator("regard-page img").count() == 0


def test_a_text_from_right_to_left_runs_from_right_to_left(open_page: Callable) -> None:
    tab = open_page(Trace.of_maps({"a": torch.eye(3)}, queries=["مرحبا", "يا", "عالم"], keys="abc"))
    left = [tab.page.locator(WORD.format("query", index)).bounding_box()["x"] for index in range(3)]
    assert left == sorted(left, reverse=True)


def test_nothing_overflows_on_a_phone(browser: Any, tmp_path: Path, recorded: Trace) -> None:
    from regard.visual.page import write

    file = write(recorded, tmp_path / "a.html")
    context = browser.new_context(offline=True, viewport={"width": 390, "height": 800})
    page = context.new_page()
    page.goto(file.as_uri())
    page.wait_for_selector("regard-page[data-ready]")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    context.close()


def test_a_notebook_frame_works(browser: Any, aligned: Trace) -> None:
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.set_content(iframe(document(aligned)))
    frame = page.frame_locator("iframe")
    frame.locator("regard-page[data-ready]").wait_for()
    assert frame.locator("h2").first.inner_text() == "Links"
    context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_serious_accessibility_violation(
    browser: Any, tmp_path: Path, recorded: Trace, scheme: str, axe: str
) -> None:
    from regard.visual.page import write

    file = write({"1": recorded, "2": recorded}, tmp_path / "a.html")
    context = browser.new_context(offline=True, color_scheme=scheme, bypass_csp=True)
    page = context.new_page()
    page.goto(file.as_uri())
    page.wait_for_selector("regard-page[data-ready]")
    page.click(WORD.format("query", 2))
    page.wait_for_timeout(200)
    page.evaluate(axe)
    found = page.evaluate("axe.run(document)")
    serious = [rule for rule in found["violations"] if rule["impact"] in ("serious", "critical")]
    context.close()
    assert [(rule["id"], rule["nodes"][0]["html"][:200]) for rule in serious] == []
