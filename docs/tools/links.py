"""A hook of mkdocs: links between languages and to files outside docs/, which the site has not."""

import re
from posixpath import dirname, join, normpath, relpath
from typing import Any

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]+)?\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Return a page with links to the other language, and without links to files outside docs/."""
    source, korean = page.file.src_uri, page.file.locale == "ko"

    def rewrite(found: re.Match[str]) -> str:
        text, path, anchor = found[1], found[2], found[3] or ""
        target = normpath(join(dirname(source), path))
        if target == "../ARCHITECTURE.md":  # which a page includes
            return f"[{text}]({relpath('architecture.md', dirname(source) or '.')}{anchor})"
        if target.startswith("../"):
            return text
        if korean and target.replace(".md", ".ko.md") == source:
            url = target
        elif not korean and target.endswith(".ko.md"):
            url = "ko/" + target.replace(".ko.md", ".md")
        else:
            return found[0]
        url = relpath(url.replace(".md", ".html"), dirname(page.url) or ".")
        return f'<a href="{url}{anchor}">{text}</a>'

    return LINK.sub(rewrite, markdown)
