"""An extension of griffe: examples of docstrings as blocks of code; Markdown would quote them."""

import re
import textwrap
from typing import Any

import griffe

EXAMPLE = re.compile(r"^( *)>>> .*(?:\n(?! *$).*)*", re.MULTILINE)


class FenceExamples(griffe.Extension):
    """Fences every doctest of a docstring, up to the next empty line."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of an object."""
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(_fenced, obj.docstring.value)


def _fenced(found: re.Match[str]) -> str:
    code = textwrap.dedent(found[0])
    return textwrap.indent(f"```pycon\n{code}\n```", found[1])
