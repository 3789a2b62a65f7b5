"""The studio in a real browser, used as a person uses it."""

import json
import math
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import torch

import regard
from regard.studio import create_studio
from tests.loopback import Client, serving

ROOMS = ["look", "edit", "compare", "workflow", "workflow?mode=free", "gallery", "train"]
QUICK = "data.count=400 data.valid_count=20 data.test_count=20 model.hidden=12 model.embedding=8"


@pytest.fixture(scope="module")
def server(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    home = shutil.copytree(trained, tmp_path_factory.mktemp("studio") / "runs")
    with serving(create_studio([], home=Path(home))) as client:
        yield client


class Tab:
    """A page of the studio."""

    def __init__(self, browser: Any, address: str, **context: Any) -> None:
        self.errors: list[str] = []
        self.outside: list[str] = []
        self.context = browser.new_context(viewport={"width": 1200, "height": 900}, **context)
        self.page = self.context.new_page()
        self.address = address
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", self._check)

    def _note(self, message: Any) -> None:
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.errors.append(message.text)  # an answer that is an error is shown on the page

    def _check(self, request: Any) -> None:
        if not request.url.startswith((self.address, "data:", "blob:")):
            self.outside.append(request.url)

    def go(self, room: str) -> None:
        self.page.goto("about:blank")
        self.page.goto(f"{self.address}/#/{room}")
        self.page.wait_for_selector("main > [data-ready]", state="attached")

    def until(self, expression: str, wanted: Any = True) -> None:
        """Wait until an expression has a value; the policy forbids Playwright's own way."""
        for _ in range(600):
            found = self.page.evaluate(expression)
            if found == wanted:
                return
            self.page.wait_for_timeout(25)
        raise AssertionError(f"{expression} is {found!r}, not {wanted!r}")

    def text(self, selector: str) -> str:
        return str(self.page.locator(selector).first.inner_text())


@pytest.fixture
def open_tab(browser: Any, server: Client) -> Iterator[Callable[..., Tab]]:
    tabs: list[Tab] = []

    def opened(room: str, address: str = server.address, **context: Any) -> Tab:
        tabs.append(Tab(browser, address, **context))
        tabs[-1].go(room)
        return tabs[-1]

    yield opened
    for tab in tabs:
        tab.context.close()
        assert tab.outside == []
        assert tab.errors == []


def test_output_follows_what_is_typed_and_another_word_can_be_chosen(open_tab):
    tab = open_tab("look?run=letters&text=ab")
    page = tab.page
    page.locator("textarea").press_sequentially("c")
    tab.until("document.querySelector('studio-look').looked?.text", "abc")
    assert not page.locator("regard-table .tools").is_visible()  # there is one page of rows
    assert tab.text(".output") == page.evaluate(
        "document.querySelector('studio-look').looked.output"
    )
    assert "text=abc" in page.url
    first = page.locator(".output-word").first
    before = first.inner_text()
    first.click()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector(".output-word.chosen")
    assert page.locator(".output-word").first.inner_text() != before
    page.get_by_role("button", name="Back to the model's own output").click()
    tab.until("document.querySelectorAll('.output-word.chosen').length", 0)
    assert page.locator(".output-word").first.inner_text() == before


def test_a_word_of_the_output_is_explained_in_a_tab_of_its_own(open_tab):
    tab = open_tab("look?run=letters&text=abc")
    page = tab.page
    tab.until("document.querySelector('studio-look').looked?.text", "abc")
    page.locator(".output-word").first.click()
    with page.expect_popup() as opened:
        page.get_by_role("menuitem", name="Why this word?").click()
    why = opened.value
    why.wait_for_selector("h2")
    assert why.locator("h2").all_inner_texts()[-1] == "Is that so?"
    assert why.locator("td").count() > 10


@pytest.mark.parametrize(
    ("locale", "of_page", "of_model"),
    [
        ("en-US", "Loading …", "Loading the model letters …"),
        ("ko-KR", "불러오는 중 …", "letters 모델을 불러오는 중입니다 …"),
    ],
)
def test_the_frame_is_there_while_runs_and_models_are_loaded(
    browser, server, locale, of_page, of_model
):
    tab = Tab(browser, server.address, locale=locale)
    held = []
    for path in ("runs", "examples"):
        tab.page.route(f"**/api/v1/{path}*", lambda route: held.append(route))
    tab.page.goto(f"{server.address}/#/look?run=letters&text=ab", wait_until="commit")
    for count, status in enumerate((of_page, of_model), start=1):
        tab.page.locator("main [role=status]", has_text=status).first.wait_for()
        assert tab.page.locator("nav a").count() == 6
        assert len(held) == count
        held[-1].continue_()
    tab.until("document.querySelector('studio-look').looked?.text", "ab")
    tab.page.wait_for_selector("main > [data-ready]", state="attached")
    assert not tab.page.get_by_text(of_model).is_visible()
    tab.context.close()
    assert tab.errors == []


def test_a_model_that_cannot_be_loaded_says_why(open_tab, serve, home):
    weights = home / "letters" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-7])
    tab = open_tab("look?run=letters&text=ab", address=serve(create_studio([], home=home)).address)
    (problem,) = tab.page.locator(".problem:visible").all()
    assert problem.inner_text().startswith("The model letters could not be loaded: ")
    assert "damaged" in problem.inner_text()
    tab.page.get_by_label("Model").select_option("without")  # the others can
    tab.until("document.querySelector('studio-look').looked?.text.length > 0")
    assert tab.page.locator(".problem:visible").count() == 0


def test_a_room_that_cannot_be_built_says_why(open_tab, server):
    tab = open_tab("look")
    tab.page.route(
        "**/api/v1/recipes", lambda route: route.fulfill(status=503, json={"error": "busy"})
    )
    tab.page.click("nav a[data-room=train]")
    tab.page.locator("studio-train .problem", has_text="busy").wait_for()


def test_another_language_or_theme_keeps_the_room_and_its_input(open_tab):
    tab = open_tab("look?run=letters&text=cab")
    tab.page.select_option("#studio-theme", "dark")
    assert tab.page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert tab.page.input_value("textarea") == "cab"
    tab.page.select_option("#studio-language", "ko")
    tab.page.wait_for_selector("main > studio-look[data-ready]", state="attached")
    assert tab.text("studio-look h2") == "보기"
    assert tab.page.input_value("textarea") == "cab"
    tab.page.locator("regard-heatmap").wait_for()
    assert tab.page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_korean_is_composed_without_disturbance(open_tab):
    tab = open_tab("look?run=letters", locale="ko-KR")
    page = tab.page
    assert tab.text("nav a[aria-current]") == "보기"
    page.locator("textarea").fill("")
    page.locator("textarea").focus()
    keyboard = tab.context.new_cdp_session(page)
    for part in ("ㅎ", "하", "한"):
        selection = {"selectionStart": 1, "selectionEnd": 1}
        keyboard.send("Input.imeSetComposition", {"text": part, **selection})
        page.wait_for_timeout(60)
    keyboard.send("Input.insertText", {"text": "한"})
    keyboard.send("Input.imeSetComposition", {"text": "글", "selectionStart": 1, "selectionEnd": 1})
    keyboard.send("Input.insertText", {"text": "글"})
    tab.until("document.querySelector('textarea').value", "한글")
    tab.until("document.querySelector('studio-look').looked?.text", "한글")
    assert tab.page.evaluate("document.activeElement.localName") == "textarea"


def test_hover_points_click_pins_and_the_address_restores_it(open_tab):
    tab = open_tab("look?run=letters&text=cab")
    page = tab.page
    word = page.locator("regard-strip .query .word").nth(1)
    word.hover()
    tab.until("document.querySelector('.sentence').textContent.includes('attends')")
    word.click()
    tab.until("location.hash.includes('query=1')")
    sentence = tab.text(".sentence")
    assert "pinned" in sentence
    page.reload()
    page.wait_for_selector("main > [data-ready]", state="attached")
    tab.until("document.querySelector('.sentence').textContent.includes('pinned')")
    assert tab.text(".sentence") == sentence
    assert page.locator("textarea").input_value() == "cab"


def test_every_button_gives_a_file(open_tab):
    tab = open_tab("look?run=letters&text=cab")
    for name, start in (("SVG", b"<?xml"), ("HTML", b"<!doctype"), (".attn", None)):
        with tab.page.expect_download() as download:
            tab.page.locator(".files button", has_text=name).click()
        content = Path(download.value.path()).read_bytes()
        assert content
        assert start is None or content.startswith(start)


def test_a_word_is_hidden_undone_redone_and_a_weight_is_set(open_tab):
    tab = open_tab("edit?run=letters&text=cab")
    page = tab.page
    output = "document.querySelectorAll('studio-edit .pane .output')[1].textContent"
    cells = "[...document.querySelectorAll('.changes td:last-child')]"
    changed = f"{cells}.some((cell) => !/^.?0.00$/.test(cell.textContent))"
    before = page.evaluate(output)
    page.locator(".chip").first.click()
    tab.until(changed)
    after = page.evaluate(output)
    tab.page.get_by_role("button", name="Undo").click()
    tab.until(changed, False)
    assert page.evaluate(output) == before
    tab.page.get_by_role("button", name="Redo").click()
    tab.until(changed)
    assert page.evaluate(output) == after
    page.reload()  # the address has the edits
    page.wait_for_selector("main > [data-ready]", state="attached")
    tab.until(changed)
    tab.page.get_by_role("button", name="Reset").click()
    tab.until(changed, False)
    heatmap = page.locator("regard-heatmap .stage").first
    heatmap.focus()
    for key in ("ArrowDown", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    slider = page.locator("#studio-weight")
    slider.focus()
    page.keyboard.press("End")
    tab.until("document.querySelectorAll('.edits li').length", 1)
    tab.until(changed)
    with page.expect_download() as download:
        page.locator(".files button", has_text=".attn").click()
    trace = regard.load_trace(download.value.path())
    assert float(trace.calls[0].map.dense().max()) > 0.999  # the weight that was set


def test_an_input_goes_along_to_the_next_room(open_tab):
    tab = open_tab("look?run=letters&text=cab")
    for room in ("edit", "workflow", "look"):
        tab.page.click(f"nav a[data-room={room}]")
        tab.page.wait_for_selector(f"main > studio-{room}[data-ready]", state="attached")
        assert tab.page.input_value("textarea") == "cab"
    assert tab.errors == []


def test_runs_stand_side_by_side(open_tab):
    tab = open_tab("compare?runs=letters,without&text=cab")
    tab.until("document.querySelectorAll('.pane').length", 2)
    tab.until("document.querySelectorAll('studio-compare tbody tr').length >= 2")
    assert "no attention" in tab.text("studio-compare table tbody tr:nth-child(2)")
    assert "This model has no attention" in tab.text(".pane:nth-child(2)")
    head = ["Model", "kind", "Output", "quality on held-out data", "time", "entropy (nats)"]
    assert tab.page.locator("studio-compare thead th").all_inner_texts()[:6] == head
    tab.page.locator("fieldset input").first.uncheck()
    assert tab.text("fieldset .problem") == "Choose at least two."


def test_mechanisms_stand_side_by_side_with_their_difference(open_tab):
    tab = open_tab("compare?mechanisms=score-dot,mask-causal&text=stop%20post%20ab")
    tab.until("document.querySelectorAll('.pane regard-heatmap').length", 2)
    tab.until("document.querySelectorAll('.difference tbody tr').length", 3)
    assert "dot product" in tab.text(".pane h3")
    head = tab.page.locator("studio-compare > .scroll thead th").all_inner_texts()
    assert head == ["mechanism", "time", "entropy (nats)"]  # they write nothing and are not trained
    tab.page.get_by_label("softmax with a sink").check()
    tab.until("document.querySelectorAll('.pane').length", 3)
    assert "normalizer-sink" in tab.page.url
    # six letters, vectors of length √6: scores √6 for the same letters, 0 for none in common
    same, other = math.exp(6**0.5), 1.0
    rows = torch.tensor([[same, same, other], [same, same, other], [other, other, same]])
    rows /= rows.sum(-1, keepdim=True)
    entropy = float(-(rows * rows.log()).sum(-1).mean())
    tab.go("compare?mechanisms=score-scaled_dot,normalizer-sigmoid&text=stop%20post%20ab")
    tab.until("document.querySelectorAll('.pane regard-heatmap').length", 2)
    found = tab.text("studio-compare > .scroll tbody td:last-child")
    assert float(found) == pytest.approx(entropy, abs=6e-3)
    tab.page.locator("textarea").fill("word")
    tab.until("document.querySelectorAll('.pane .problem').length", 2)
    assert "2 to 32 words" in tab.text(".pane .problem")


@pytest.mark.parametrize("score", ["dot", "scaled_dot", "cosine", "additive"])
@pytest.mark.parametrize(
    ("mask", "normalizer", "formula"),
    [
        ("none", "softmax", "softmax( "),
        ("causal", "sparsemax", "j ≤ i + 2"),
        ("window", "sigmoid", "|i + 2 − j| ≤ 1"),
        ("causal", "sink", "j ≤ i + 2"),
    ],
)
def test_numbers_of_ones_own_are_those_of_attend(open_tab, score, mask, normalizer, formula):
    q, k = [[1.0, 0.5], [0.0, 2.0]], [[1.0, 0.0], [0.5, -1.0], [2.0, 1.0], [-1.0, 0.5]]
    v = [[1.0], [2.0], [4.0], [8.0]]
    fields = {"score": score, "mask": mask, "normalizer": normalizer, "scale": 2}
    fields |= {"query": json.dumps(q), "key": json.dumps(k), "value": json.dumps(v)}
    tab = open_tab(f"workflow?{urlencode({'mode': 'free', **fields})}")
    tab.until("!!document.querySelector('.matrices + .matrices td')")
    chosen: Any = "dot" if score == "additive" else score
    if score == "additive":
        chosen = regard.Additive(2, 2, 2)
        with torch.no_grad():
            chosen.query_weight.copy_(torch.eye(2))
            chosen.key_weight.copy_(torch.eye(2))
            chosen.vector.fill_(1.0)
    sink = {"normalize": "softmax", "sink": 0.0} if normalizer == "sink" else {}
    normalize = regard.Normalizer(**{"normalize": normalizer, **sink, "temperature": 0.5})
    masks = {"none": None, "causal": regard.causal(), "window": regard.window(1, 1)}
    with torch.no_grad():
        expected = regard.attend(
            *(torch.tensor(each) for each in (q, k, v)),
            score=chosen, mask=masks[mask], normalize=normalize,
        )  # fmt: skip
    shown = tab.page.locator(".matrices + .matrices td").all_inner_texts()
    found = [float(each.replace("−", "-")) for each in shown]
    assert found == pytest.approx(expected.flatten().tolist(), abs=6e-4)
    assert formula in tab.text(".formula")


def test_steps_are_shown_one_after_the_other_and_another_normalizer_changes_them(open_tab):
    tab = open_tab("workflow?mode=model&run=letters&text=cab")
    page = tab.page
    steps = page.locator("regard-workflow .steps > .step")
    steps.first.wait_for()
    count = steps.count()
    assert count > 4
    page.get_by_role("button", name="First step").click()
    assert [steps.nth(i).is_visible() for i in range(3)] == [True, False, False]
    page.get_by_role("button", name="Next step").click()
    assert [steps.nth(i).is_visible() for i in range(3)] == [True, True, False]
    page.get_by_role("button", name="All steps").click()
    assert steps.nth(count - 1).is_visible()
    page.get_by_label("Normalizer").select_option("hard")
    largest = "Math.max(...document.querySelector('regard-views').view.map.cells)"
    tab.until(f"{largest} > 0.999")
    assert "normalizer=hard" in page.url


def test_numbers_of_ones_own_are_computed_anew(open_tab):
    tab = open_tab("workflow?mode=free")
    page = tab.page
    cell = "document.querySelector('.matrices + .matrices td').textContent"
    tab.until(f"!!({cell})")
    before = page.evaluate(cell)
    page.locator(".matrix input").first.fill("5")
    tab.until(f"({cell}) !== '{before}'")
    page.locator("select").nth(4).select_option("hard")
    tab.until("document.querySelector('.formula').textContent.includes('argmax')")
    page.get_by_role("button", name="Add a column: Keys K").click()
    tab.until("!!document.querySelector('[data-field=key] .problem:not([hidden])')")
    assert "make them equal" in tab.text("[data-field=key] .problem")


def test_a_training_is_started_watched_reloaded_and_found_again(open_tab):
    tab = open_tab("train?recipe=copy")
    page = tab.page
    page.get_by_label("Other settings").fill(f"{QUICK} training.threads=1 training.lrr=1")
    page.get_by_label("Name of the run").fill("watched")
    page.get_by_role("button", name="Start training").click()
    tab.until("!!document.querySelector('[data-field=settings] .problem:not([hidden])')")
    assert "training.lrr" in tab.text("[data-field=settings] .problem")
    page.get_by_label("Other settings").fill(f"{QUICK} training.threads=1")
    page.get_by_role("button", name="Start training").click()
    tab.until("!!document.querySelector('.status')?.textContent.startsWith('running')")
    page.reload()
    page.wait_for_selector("main > [data-ready]", state="attached")
    assert "run=watched" in page.url
    page.wait_for_selector("regard-heatmap canvas", timeout=60_000)
    for _ in range(40):
        if tab.text(".status").startswith("finished"):
            break
        page.wait_for_timeout(1000)
    assert tab.text(".status").startswith("finished")
    assert page.locator(".chart polyline").count() >= 2
    page.locator("#studio-studio-train-checkpoint").press("Home")
    tab.until("!!document.querySelector('studio-train').dataset.drawn")
    page.get_by_role("link", name="Look at it").click()
    page.wait_for_selector("studio-look regard-heatmap canvas")


def test_files_of_every_kind_are_previewed(open_tab):
    tab = open_tab("train")
    page = tab.page
    words = {"좋다": "good", "싫다": "bad", "지루하다": "bad"}
    rows = "\n".join(f"영화가 {word}\t{label}" for word, label in words.items() for _ in range(6))
    file = {"name": "mine.tsv", "mimeType": "text/plain", "buffer": rows.encode()}
    page.locator("input[type=file]").set_input_files(file)
    tab.until("document.querySelector('.preview th')?.textContent", "source")
    page.get_by_label("What the file holds").select_option("classify")
    tab.until("document.querySelectorAll('.preview th')[1]?.textContent", "label")
    assert tab.text(".preview [role=status]") == "mine.tsv: 18 texts"
    page.get_by_label("What the file holds").select_option("language")
    tab.until("!!document.querySelector('[data-field=upload] .problem:not([hidden])')")
    assert "at least 1,000" in tab.text("[data-field=upload] .problem") or "text" in tab.text(
        "[data-field=upload] .problem"
    )


def test_a_lost_server_comes_back(open_tab, trained, tmp_path):
    home = Path(shutil.copytree(trained, tmp_path / "runs"))
    with ExitStack() as first:
        client = first.enter_context(serving(create_studio([], home=home)))
        tab = open_tab("look?run=letters&text=ab", address=client.address)
    tab.page.locator("textarea").press_sequentially("c")
    tab.until("!!document.querySelector('.problem:not([hidden])')")
    assert "does not answer" in tab.text(".problem:not([hidden])")
    with serving(create_studio([], home=home), client.port):
        tab.until("document.querySelector('studio-look').looked?.text", "abc")
        tab.until("!!document.querySelector('.problem:not([hidden])')", False)


def test_the_token_of_the_address_is_kept_and_without_it_the_page_says_what_to_open(
    browser, serve, home
):
    client = serve(create_studio([], home=home, token="secret"))
    tab = Tab(browser, client.address)
    tab.page.goto(f"{client.address}/#token=secret")
    for _ in range(2):
        tab.page.wait_for_selector("main > [data-ready]", state="attached")
        assert "secret" not in tab.page.url
        tab.page.reload()
    assert tab.context.cookies() == []
    tab.context.close()
    other = Tab(browser, client.address)
    other.page.goto(client.address)
    other.page.locator(
        ".offline", has_text="Open the address that regard studio printed"
    ).wait_for()
    other.context.close()
    assert tab.errors == other.errors == []


def test_two_tabs_do_not_disturb_each_other(open_tab):
    tabs = [open_tab(f"look?run={run}&text=a") for run in ("letters", "without")]
    for letter in "bcd":
        for tab in tabs:
            tab.page.locator("textarea").press_sequentially(letter)
    for tab in tabs:
        tab.until("document.querySelector('studio-look').looked?.text", "abcd")


def test_tokens_are_never_markup(open_tab):
    tab = open_tab("look?run=letters&text=" + "%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E")
    tab.until("!!document.querySelector('studio-look').looked")
    assert tab.page.locator("main img[src='x']").count() == 0


def test_without_runs_every_room_says_what_to_do(open_tab, serve, tmp_path):
    client = serve(create_studio([], home=tmp_path))
    tab = open_tab("look", address=client.address)
    for room in ("look", "edit"):
        tab.go(room)
        assert "rain" in tab.text(".empty")  # "Train one", "There is no trained model"
    tab.go("compare")  # mechanisms need no model
    tab.until("document.querySelectorAll('.pane regard-heatmap').length", 2)
    tab.go("workflow")
    assert tab.page.locator(".matrix").count() >= 3
    tab.go("")
    assert tab.text("nav a[aria-current]") == "Train"


@pytest.mark.parametrize("language", ["en-US", "ko-KR"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_room_has_a_serious_accessibility_violation(open_tab, axe, language, scheme):
    tab = open_tab("look", locale=language, color_scheme=scheme, bypass_csp=True)
    for room in ROOMS:
        tab.go(room)
        tab.page.wait_for_timeout(300)
        tab.page.evaluate(axe)
        found = tab.page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
        serious = [v for v in found["violations"] if v["impact"] in ("serious", "critical")]
        named = [(v["id"], [n["html"][:120] for n in v["nodes"][:3]]) for v in serious]
        assert named == [], room
