"""What commands print: exact in a pipe, harmless on a terminal, in any encoding."""

import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

# Control characters, which a terminal would interpret, as visible pictures; newline and tab stay.
_PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"}
_PICTURES |= {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
_JSON_ESCAPES = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}


def prepare_streams() -> None:
    """Make the standard streams take any text: UTF-8, except on a terminal, which may be narrow.

    A terminal, and PYTHONIOENCODING, choose their own encoding; what it lacks is escaped. A stream
    that is closed discards what is written.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    chosen = "PYTHONIOENCODING" in os.environ
    for name, errors in (("stdin", "strict"), ("stdout", "backslashreplace"), ("stderr", None)):
        stream = getattr(sys, name)
        encoding = stream.encoding if chosen or stream.isatty() else "utf-8"
        with contextlib.suppress(AttributeError):  # a stream that a program has put in its place
            stream.reconfigure(encoding=encoding, errors=errors or stream.errors)


def sanitize(text: str) -> str:
    r"""Replace control characters, such as those of terminal escapes, with pictures of them.

    >>> sanitize("a\tb\x1b[2J")
    'a\tb␛[2J'
    """
    return text.translate(_PICTURES)


def one_line(text: str, longest: int = 2000) -> str:
    """Return a text on one line without control characters, cut if it is very long."""
    line = sanitize(" ".join(text[: 4 * longest].split()))
    return line if len(line) <= longest else line[:longest] + "…"


def write(text: str) -> None:
    """Print untrusted text: unchanged to a file or pipe, sanitized on a terminal."""
    print(sanitize(text) if sys.stdout.isatty() else text)


def write_json(value: Any, *, indent: int | None = None) -> None:
    """Print JSON, in ASCII where the stream takes no more."""
    print(to_json(value, indent=indent))


def to_json(value: Any, *, indent: int | None = None) -> str:
    """Return JSON as text, in ASCII where standard output takes no more."""
    unicode = (sys.stdout.encoding or "").lower().replace("-", "").startswith("utf")
    text = json.dumps(value, ensure_ascii=not unicode, indent=indent)
    return text.translate(_JSON_ESCAPES)


def check_output(path: Path, *, option: str = "--out", new_folders: bool = True) -> None:
    """Raise now, not after minutes of work, if a file or directory could not be written.

    Args:
        new_folders: whether missing directories above it are created later

    Raises:
        ValueError: if its name is not UTF-8
        OSError: if the directory that would hold it cannot be written to
    """
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"{option} {str(path)!r} is not UTF-8: choose another name") from error
    parent = path.absolute().parent
    if not new_folders and not parent.is_dir():
        raise FileNotFoundError(f"cannot write {path.name}: directory {parent} does not exist")
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir():
        raise NotADirectoryError(f"{option} {path}: {parent} is a file, not a directory")
    if not os.access(path if path.exists() else parent, os.W_OK):
        raise PermissionError(f"{option} {path}: permission denied")


class StatusLine:
    """A line on standard error: rewritten on a terminal, else repeated every ten seconds."""

    def __init__(self) -> None:
        self.start = self.shown = time.monotonic()

    def show(self, text: str, *, done: bool = False) -> None:
        """Show the text if the last one is old enough, or if it is the final one."""
        terminal = sys.stderr.isatty()
        now = time.monotonic()
        if not done and now - self.shown < (0.2 if terminal else 10.0):
            return
        self.shown = now
        before, after = ("\r\033[K", "\n" if done else "") if terminal else ("", "\n")
        print(f"{before}{one_line(text)}", end=after, file=sys.stderr, flush=True)
