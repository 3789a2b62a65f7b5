"""The inputs of `regard predict`: arguments, lines, TSV or JSON, from files or standard input."""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

JSON_LINES = (".jsonl", ".ndjson")
TEXT_FILES = (".txt", ".tsv", *JSON_LINES)
FEW = 8  # texts of a command line that are answered without compiled kernels
IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".bmp")

Item = TypeVar("Item")


class Record(NamedTuple):
    """An input before a predictor has parsed it."""

    content: str | dict[str, Any]  # a text, or a JSON object
    place: str  # where it comes from, for errors


def read_records(
    arguments: Sequence[str], task: str, *, text: bool = False, jsonl: bool = False
) -> Iterator[Record]:
    """Yield the inputs of a command line, in order; without arguments those of standard input.

    Args:
        arguments: files, `-` for standard input, or texts; a text that begins with { is JSON
        task: `pair` takes two texts as one input, and two columns of a .tsv file, others one
        text: whether every argument is a text, also if it names a file or is JSON
        jsonl: whether the lines of files and standard input are JSON objects; those of .jsonl
            and .ndjson files always are
    """
    from regard.data.files import format_of, open_file

    columns = 2 if task == "pair" else 1
    if task == "pair" and len(arguments) == 2 and not any(map(_is_file, arguments)):
        arguments, text = ["\t".join(arguments)], True
    for number, argument in enumerate(arguments or ["-"], 1):
        path = Path(argument)
        if text:
            yield Record(argument, f"input {number}")
        elif argument == "-":
            yield from _lines(sys.stdin.buffer, "standard input", jsonl, 0)
        elif _is_file(argument):
            if path.suffix.lower() in IMAGES:
                yield Record(argument, argument)
                continue
            kind = format_of(path)
            objects = jsonl or f".{kind}" in JSON_LINES
            with open_file(path) as file:
                yield from _lines(file, argument, objects, columns * (kind == "tsv"))
        elif f".{format_of(path)}" in (*TEXT_FILES, *IMAGES) and len(argument.split()) == 1:
            raise FileNotFoundError(f"file {argument} does not exist; --text reads it as a text")
        elif argument.lstrip().startswith("{"):
            yield Record(_object(argument, f"input {number}"), f"input {number}")
        else:
            yield Record(argument, f"input {number}")


def are_few_texts(arguments: Sequence[str]) -> bool:
    """Whether a command line has nothing but a few texts, so that every import is felt."""
    return 0 < len(arguments) <= FEW and not any(map(_is_file, arguments))


def in_batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield lists of `size` items; an item that raises does so after those before it."""
    iterator = iter(items)
    while True:
        batch: list[Item] = []
        try:
            for item in islice(iterator, size):
                batch.append(item)
        except (ValueError, OSError):
            if batch:
                yield batch
            raise
        if not batch:
            return
        yield batch


def _is_file(argument: str) -> bool:
    """Return whether an argument names a file; a text that cannot be a path does not."""
    try:
        return argument == "-" or Path(argument).is_file() or Path(argument).is_fifo()
    except (OSError, ValueError):  # too long for a name, or with a null character
        return False


def _lines(stream: BinaryIO, name: str, objects: bool, columns: int) -> Iterator[Record]:
    from regard.data.files import SURROGATE, decoded

    content = decoded(stream)
    try:
        for number, line in enumerate(content, 1):
            place = f"line {number} of {name}"
            if wrong := SURROGATE.search(line):
                raise ValueError(
                    f"{place} is not UTF-8 at character {wrong.start() + 1}: convert it, for "
                    "example with iconv -t UTF-8"
                )
            text = line.rstrip("\r\n")
            if objects:
                if text.strip():
                    yield Record(_object(text, place), place)
            else:
                yield Record("\t".join(text.split("\t")[:columns]) if columns else text, place)
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} is not {error.encoding}: {error.reason}") from None
    finally:
        content.detach()  # the stream is its owner's to close


def _object(text: str, place: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{place} is not JSON: {error}; --text reads it as a text") from error
    if not isinstance(value, dict):
        raise ValueError(f"{place} should be a JSON object, got {type(value).__name__}")
    return value
