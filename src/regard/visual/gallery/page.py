"""The gallery as one HTML file and as Markdown, with its maps as SVG."""

from collections.abc import Sequence
from html import escape
from itertools import groupby

from regard.visual.gallery.exhibit import LENGTH, WIDTH, Exhibit
from regard.visual.gallery.texts import GLOSSARIES, PAGE, ROOMS
from regard.visual.html import html_page
from regard.visual.svg import heatmap

STYLE = """
:root { color-scheme: light dark;
  --ink: #1b1f24; --soft: #57606a; --line: #d8dee4; --paper: #fff; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --soft: #9aa4af; --line: #30363d; --paper: #0d1117; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 78rem; background: var(--paper);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.9rem; margin: 0 0 .3rem; } h2 { margin: 2.6rem 0 .8rem; font-size: 1.3rem; }
header p { color: var(--soft); max-width: 46rem; margin: .2rem 0; }
nav { display: flex; flex-wrap: wrap; gap: .4rem 1rem; margin: 1rem 0 0; }
a { color: #0969da; } @media (prefers-color-scheme: dark) { a { color: #58a6ff; } }
.room { display: grid; grid-template-columns: repeat(auto-fill, minmax(21rem, 1fr)); gap: 1rem; }
article { border: 1px solid var(--line); border-radius: 8px; padding: 1rem; min-width: 0; }
h3 { margin: 0; font-size: 1.05rem; }
.formula { font: italic 1.02rem/1.4 Cambria, Georgia, serif; margin: .35rem 0; }
.small { color: var(--soft); font-size: .85rem; margin: .3rem 0; }
code { font-size: .82rem; overflow-wrap: anywhere; }
svg { max-width: 100%; height: auto; display: block; margin: .6rem 0; }
svg text { fill: var(--ink); }
:lang(ko) { word-break: keep-all; }
"""


def page(exhibits: Sequence[Exhibit], glossaries: Sequence[str] = (), language: str = "en") -> str:
    """The gallery as one HTML file; exhibits of one room must follow each other.

    Args:
        exhibits: of all rooms
        glossaries: links of `GLOSSARIES`
        language: "en" or "ko"
    """
    texts = PAGE[language]
    rooms = [(room, list(group)) for room, group in groupby(exhibits, key=lambda e: e.room)]
    links = "".join(f'<a href="#{room}">{escape(ROOMS[room][language])}</a>' for room, _ in rooms)
    links += "".join(f'<a href="{link}">{GLOSSARIES[link]}</a>' for link in glossaries)
    sections = "".join(
        f'<section aria-labelledby="{room}"><h2 id="{room}">{escape(ROOMS[room][language])}</h2>'
        f'<div class="room">{"".join(_card(one, language) for one in group)}</div></section>'
        for room, group in rooms
    )
    body = (
        f"<header><h1>{texts.title}</h1><p>{texts.introduction} {texts.measured}</p>"
        f'<nav aria-label="{texts.rooms}">{links}</nav></header><main>{sections}</main>'
    )
    return html_page(body, title=texts.title, style=STYLE, language=language)


def listing(
    exhibits: Sequence[Exhibit], glossaries: Sequence[str] = (), language: str = "en"
) -> str:
    """The gallery as Markdown: without costs, which depend on the machine."""
    texts = PAGE[language]
    command = "regard gallery" + f" --lang {language}" * (language != "en")
    links = ", ".join(f"[{GLOSSARIES[link]}]({link})" for link in glossaries)
    parts = [texts.introduction, texts.drawn.format(command=command)]
    parts += [texts.glossary.format(links=links)] if links else []
    lines = [f"# {texts.title}", "", *parts]
    for room, group in groupby(exhibits, key=lambda exhibit: exhibit.room):
        lines += ["", f"## {ROOMS[room][language]}"]
        for exhibit in group:
            text = exhibit.text(language)
            lines += [
                "",
                f"### {text.name}",
                "",
                f"*{text.formula}* ({text.paper}). {text.caption}",
                "",
                f"`{exhibit.code}`",
                "",
                f"![{text.name}](maps/{exhibit.key}.svg)",
            ]
    return "\n".join(lines) + "\n"


def picture(exhibit: Exhibit, language: str = "en") -> str:
    """The map of an exhibit as SVG."""
    text = exhibit.text(language)
    rows, columns = exhibit.labels(language)
    return heatmap(exhibit.weights, rows, columns, title=f"{text.name}: {text.caption}")


def _card(exhibit: Exhibit, language: str) -> str:
    text = exhibit.text(language)
    return (
        f"<article><h3>{escape(text.name)}</h3>"
        f'<p class="formula">{escape(text.formula)}</p>'
        f'<p class="small">{escape(text.paper)}</p>{picture(exhibit, language)}'
        f'<p class="small">{escape(text.caption)}</p>'
        f"<code>{escape(exhibit.code)}</code>"
        f'<p class="small">{escape(_cost(exhibit, language))}</p></article>'
    )


def _cost(exhibit: Exhibit, language: str) -> str:
    """The time of a forward pass and its ratio to torch's SDPA in this run, in words."""
    ours, theirs = exhibit.measured
    ratio = _two_digits(ours / theirs)
    return PAGE[language].cost.format(
        ours=_two_digits(1000 * ours), ratio=ratio, length=LENGTH, width=WIDTH
    )


def _two_digits(number: float) -> str:
    """Two digits, without an exponent.

    >>> _two_digits(0.0234), _two_digits(123.4)
    ('0.023', '123')
    """
    return f"{number:.0f}" if number >= 10 else f"{number:.2g}"
