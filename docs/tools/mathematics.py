"""A hook of mkdocs: formulas as MathML, which browsers draw without a script or a font to fetch."""

import html
import re
from typing import Any

from latex2mathml.converter import convert

# what pymdownx.arithmatex makes of $…$ and $$…$$
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(content: str, **_: Any) -> str:
    """Return the HTML of a page with its formulas as MathML."""

    def mathml(found: re.Match[str]) -> str:
        display = "block" if found[1] == "div" else "inline"
        return convert(html.unescape(found[2]).strip(), display=display)

    return FORMULA.sub(mathml, content)
