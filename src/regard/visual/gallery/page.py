"""The gallery as one HTML file and as Markdown, with its maps as SVG."""

from collections.abc import Sequence
from html import escape
from itertools import groupby

from regard.visual.gallery.exhibit import Exhibit
from regard.visual.html import html_page
from regard.visual.svg import heatmap

TITLE = "Attention: a gallery"
GLOSSARIES = {"../glossary.md": "glossary", "../glossary.ko.md": "용어집"}
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
"""


def page(exhibits: Sequence[Exhibit], glossaries: Sequence[str] = ()) -> str:
    """The gallery as one HTML file; exhibits of one room must follow each other.

    Args:
        exhibits: of all rooms
        glossaries: links of `GLOSSARIES`
    """
    rooms = [(room, list(group)) for room, group in groupby(exhibits, key=lambda e: e.room)]
    links = "".join(f'<a href="#{_anchor(room)}">{escape(room)}</a>' for room, _ in rooms)
    links += "".join(f'<a href="{link}">{GLOSSARIES[link]}</a>' for link in glossaries)
    sections = "".join(
        f'<section aria-labelledby="{_anchor(room)}"><h2 id="{_anchor(room)}">{escape(room)}</h2>'
        f'<div class="room">{"".join(map(_card, group))}</div></section>'
        for room, group in rooms
    )
    body = (
        f"<header><h1>{TITLE}</h1>"
        "<p>Every mechanism on the same small input. Each row of a map is one query, each column "
        "one key; bright is a large weight. Costs were measured when this page was made.</p>"
        f'<nav aria-label="rooms">{links}</nav></header><main>{sections}</main>'
    )
    return html_page(body, title=TITLE, style=STYLE)


def listing(exhibits: Sequence[Exhibit], glossaries: Sequence[str] = ()) -> str:
    """The gallery as Markdown: without costs, which depend on the machine."""
    terms = ", ".join(f"[{GLOSSARIES[link]}]({link})" for link in glossaries)
    lines = [
        f"# {TITLE}",
        "",
        "Every mechanism on the same small input, drawn by `regard gallery --out docs/gallery`.",
        "Each row of a map is one query, each column one key; bright is a large weight. The page",
        "that the command writes beside this file also has what each costs on your machine.",
        *([f"Every term and its other names: {terms}."] if terms else []),
    ]
    for room, group in groupby(exhibits, key=lambda exhibit: exhibit.room):
        lines += ["", f"## {room}"]
        for exhibit in group:
            lines += [
                "",
                f"### {exhibit.name}",
                "",
                f"*{exhibit.formula}* ({exhibit.paper}). {exhibit.caption}",
                "",
                f"`{exhibit.code}`",
                "",
                f"![{exhibit.name}](maps/{exhibit.file_name}.svg)",
            ]
    return "\n".join(lines) + "\n"


def picture(exhibit: Exhibit) -> str:
    """The map of an exhibit as SVG."""
    title = f"{exhibit.name}: {exhibit.caption}"
    return heatmap(exhibit.weights, exhibit.rows, exhibit.columns, title=title)


def _card(exhibit: Exhibit) -> str:
    return (
        f"<article><h3>{escape(exhibit.name)}</h3>"
        f'<p class="formula">{escape(exhibit.formula)}</p>'
        f'<p class="small">{escape(exhibit.paper)}</p>{picture(exhibit)}'
        f'<p class="small">{escape(exhibit.caption)}</p>'
        f"<code>{escape(exhibit.code)}</code>"
        f'<p class="small">{escape(exhibit.cost)}</p></article>'
    )


def _anchor(room: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in room.lower())
