"""The documentation: the same in both languages, no broken links, a site without network."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from docs.tools.pages import FENCE, ROOT
from regard.studio import create_studio
from regard.visual.figure.workflow import ACROSS

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "README.ko.md", *sorted(DOCS.glob("**/*.md"))]
PAGES = [page for page in PAGES if page.is_file()]
KOREAN = [page for page in PAGES if page.name.endswith(".ko.md")]
BOTH = ("start", "guide", "how_to")  # folders of docs/ whose pages are in both languages
OWN_TEXT = ("step_by_step.ko.md",)  # whose code draws a Korean sentence
PICTURE = re.compile(r"!\[[^\]]*\]\(([^)\s]+)\)")
LINK = re.compile(r"(?<!!)\[(?:[^\[\]]|!\[[^\]]*\]\([^)]*\))*\]\(([^)\s]+)\)")
COMMAND = re.compile(r"`((?:regard|make|torchrun|pip|python) [^`\n]+)`")


def english(page: Path) -> Path:
    return page.with_name(page.name.replace(".ko.md", ".md"))


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return FENCE.sub("", page.read_text("utf-8"))


def without_comments(code: str) -> str:
    return re.sub(r" *#.*", "", code)


def outline(page: Path) -> dict[str, list[str]]:
    """What a page and its translation have in common."""
    text = prose(page)
    code = [without_comments(found[2]) for found in FENCE.findall(page.read_text("utf-8"))]
    commands = {command for command in COMMAND.findall(text) if command not in "".join(code)}
    return {
        "headings": re.findall(r"^(#+) ", text, re.MULTILINE),
        "code": code,
        "commands": sorted(commands),
        "pictures": [picture.replace(".ko.", ".") for picture in PICTURE.findall(text)],
        "formulas": re.findall(r"^\$\$$.*?^\$\$$", text, re.MULTILINE | re.DOTALL),
        "answers": re.findall(r"^\?\?\? \w+", text, re.MULTILINE),
    }


def anchors(page: Path) -> set[str]:
    """The ids of a page: of its headings, as GitHub and the site make them, and explicit ones."""
    text = prose(page)
    headings = re.findall(r"^#+ (.+?)\s*$", text, re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", r"\1", heading) for heading in headings]
    slugs = [re.sub(r"[^\w\- ]", "", heading).strip().lower() for heading in plain]
    explicit = re.findall(r'(?:\bid="|\{ *#)([^"\s}]+)', text)
    return {*explicit, *(slug.replace(" ", "-") for slug in slugs)}


@pytest.mark.parametrize("page", KOREAN, ids=name)
def test_a_korean_page_has_the_chapters_code_commands_and_figures_of_the_english_one(page):
    korean, both = outline(page), outline(english(page))
    if page.name in OWN_TEXT:
        korean["code"], both["code"] = [str(len(each["code"])) for each in (korean, both)]
    assert korean == both


def test_the_guide_is_complete_in_both_languages():
    pages = [page for folder in BOTH for page in (DOCS / folder).glob("*.md")]
    written = {name(page) for page in pages}
    assert written == {name(english(page)) for page in pages} | {
        name(english(page)).replace(".md", ".ko.md") for page in pages
    }


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_picture_of_a_page_exists(page):
    shown = [target for target in PICTURE.findall(prose(page)) if "://" not in target]
    assert [target for target in shown if not (page.parent / target).is_file()] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_link_of_a_page_is_broken(page):
    broken = []
    for link in LINK.findall(prose(page)):
        path, _, anchor = unquote(link).partition("#")
        target = page.parent / path if path else page
        if "://" not in link and not (
            target.exists() and (not anchor or target.suffix != ".md" or anchor in anchors(target))
        ):
            broken.append(link)
    assert broken == []


def test_the_picture_of_eight_heads_is_described_as_it_is_drawn():
    """Eight heads stand in two rows of `ACROSS` panels, so that a row is no head."""
    assert ACROSS == 4
    for page, words in (
        ("multi_head.md", "2 × 4 panels is a head"),
        ("multi_head.ko.md", "2행 × 4열"),
    ):
        assert words in (DOCS / "guide" / page).read_text("utf-8")


def test_every_page_is_in_the_navigation():
    listed = re.findall(r"[\w/]+\.md", (ROOT / "mkdocs.yml").read_text("utf-8"))
    pages = [page.relative_to(DOCS) for page in PAGES if DOCS in page.parents]
    assert {str(page) for page in pages if ".ko." not in page.name} == {*listed}


class Loaded(HTMLParser):
    """Collects what a page loads, what it links to, and its ids."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.feed(page.read_text("utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {key: value or "" for key, value in attributes}
        self.ids |= {values[key] for key in ("id", "name") if key in values}
        if tag == "a":
            self.links += [values["href"]] if "href" in values else []
        elif tag != "link" or values.get("rel") not in ("alternate", "canonical", "next", "prev"):
            self.loads += [values[key] for key in ("src", "href", "data") if key in values]


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """Return the folder of the built site."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-d", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.mark.slow
def test_the_site_loads_nothing_from_elsewhere_and_has_no_broken_link(site):
    pages = {page: Loaded(page) for page in site.glob("**/*.html") if page.name != "404.html"}
    foreign = re.compile(r"^(\w+:)?//")
    assert {url for page in pages.values() for url in page.loads if foreign.match(url)} == set()
    styles = [style.read_text("utf-8") for style in site.glob("**/*.css")]
    assert [
        url for style in styles for url in re.findall(r"url\([\"']?(?:https?:)?//", style)
    ] == []
    broken = []
    for page, found in pages.items():
        for link in {*found.links, *found.loads}:
            path, _, anchor = unquote(link).partition("#")
            target = (page.parent / path.partition("?")[0]).resolve() if path else page
            if not re.match(r"\w+:", link) and not (
                target.exists() and (not anchor or anchor in pages[target].ids)
            ):
                broken.append(f"{page.relative_to(site)}: {link}")
    assert broken == []


def test_the_site_is_searched_and_switches_language_from_disk(site, browser):
    page = browser.new_page()
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto((site / "index.html").as_uri())
    page.locator(".md-search__input").first.fill("sparsemax")
    page.locator(".md-search-result__link").first.wait_for()
    assert "sparsemax" in page.locator(".md-search-result__item").first.inner_text().lower()
    page.keyboard.press("Escape")
    page.goto((site / "guide" / "index.html").as_uri())
    page.locator(".md-select").first.hover()
    page.locator('.md-select__link[hreflang="ko"]').click()
    page.wait_for_url("**/ko/guide/index.html")
    assert page.locator("html").get_attribute("lang") == "ko"
    page.locator(".md-search__input").first.fill("어텐션")
    page.locator(".md-search-result__link").first.wait_for()
    assert {url for url in requests if not url.startswith(("file:", "data:", "blob:"))} == set()
    page.close()


ARTICLE = re.compile(r"<article.*?</article>", re.DOTALL)
LARGEST = 150 * 1024  # bytes of a chapter with its figure, beyond the theme and the search
SLOWEST = 300  # milliseconds until the figure can be used


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["guide", "ko/guide"])
def test_a_chapter_with_its_figure_is_small_and_quick_from_disk(site, browser, folder):
    chapters = [page for page in (site / folder).glob("*.html") if page.stem != "index"]
    assert len(chapters) >= 15
    context = browser.new_context(offline=True, viewport={"width": 1280, "height": 900})
    tab = context.new_page()
    errors: list[str] = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    script = (site / "assets" / "figure.js").stat().st_size
    for page in chapters:
        (article,) = ARTICLE.findall(page.read_text("utf-8"))
        pictures = set(re.findall(r'<img[^>]* src="([^"]+)"', article))
        size = len(article.encode()) + sum((page.parent / name).stat().st_size for name in pictures)
        assert size + script <= LARGEST, page
        times = []
        for _ in range(5):  # another process may be in the way
            tab.goto(page.as_uri())
            figure = tab.locator("attention-figure[data-ready]").first
            times.append(int(figure.get_attribute("data-ready") or 0))
            if times[-1] <= SLOWEST:
                break
        assert min(times) <= SLOWEST, (page, times)
    context.close()
    assert errors == []


@pytest.mark.slow
def test_the_studio_serves_the_figures_of_the_documentation(site, browser, serve, tmp_path):
    client = serve(create_studio([], home=tmp_path, docs=site))
    tab = browser.new_page()
    tab.goto(f"{client.address}/docs/guide/scores.html")
    tab.locator("attention-figure[data-ready]").wait_for()
    tab.locator("attention-figure summary").last.click()
    tab.locator("regard-workflow .step.context").wait_for()
    tab.close()
