"""The gallery as Markdown, for reading where the source is read."""

from collections.abc import Sequence
from itertools import groupby

from regard.visual.gallery.exhibit import Exhibit

HEADING = "# Attention: a gallery"


def listing(exhibits: Sequence[Exhibit]) -> str:
    """Every exhibit with its formula, paper, code and map; without costs, which are a machine's."""
    lines = [
        HEADING,
        "",
        "Every mechanism on the same small input, drawn by `regard gallery --out docs/gallery`.",
        "Each row of a map is one query, each column one key; bright is a large weight. The page",
        "that the command writes beside this file also has what each costs on your machine.",
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
