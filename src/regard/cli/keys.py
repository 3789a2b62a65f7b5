"""`regard train --keys`: every key of a configuration, from the classes that validate it."""

import inspect
import textwrap
import typing
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, get_args, get_origin

KEY, VALUE, WIDTH = 20, 28, 100
MODEL = {  # the options of `regard.models.build` that a configuration can hold
    "embedding": "width of the embeddings",
    "hidden": "width of the recurrent states, or inside the feed-forward networks",
    "layers": "number of layers of the encoder, and of the decoder",
    "decoder_layers": "number of layers of the decoder, if not that of the encoder",
    "cell": "gru or lstm",
    "bidirectional": "which layers of the encoder read both ways: none, bottom or all",
    "reverse_source": "read the source from its end (Sutskever et al. 2014)",
    "residual": "add the input of each layer to its output",
    "dim": "width of the layers",
    "heads": "number of attention heads",
    "kv_heads": "number of heads of keys and values, if fewer",
    "score": "",  # the names of `regard.core.score.BUILDERS`
    "attention": "",  # the names of `regard.models.aligner.ALIGNERS`
    "window": "half the width of local attention",
    "width": "width of the maxout layer",
    "join": "how context and state are joined: tanh or concatenate",
    "feeding": "feed the joined state to the next step (Luong et al. 2015, section 3.3)",
    "encoder_attention": "dot, or efficient, which is linear in the length",
    "norm": "post or pre",
    "position": "sinusoidal, learned, rotary, alibi, relative or none",
    "max_length": "number of learned positions",
    "tie": "share the output's matrix with embeddings; transformer: none, output or all",
    "dropout": "of embeddings and layers",
    "attention_dropout": "of attention weights",
    "frames": "width of float frames, for sources that are not text",
}


class Key(NamedTuple):
    """A key of a table: its type, default and description, as shown."""

    name: str
    type: str
    default: str  # empty: none
    about: str


def describe_keys(task: str | None = None) -> str:
    """Return every key of the configuration as text, table by table.

    Args:
        task: show the tables of this task alone; by default of all
    """
    from regard.tasks import TASKS
    from regard.training.config import Config, Distributed, Training

    top = [key for key in settings_keys(Config) if key.name in ("task", "seed")]
    parts = [_table("", top), _table("[training]", settings_keys(Training))]
    parts.append(_table("[distributed]", settings_keys(Distributed)))
    for name in TASKS if task is None else (task,):
        for table, keys in task_keys(name).items():
            parts.append(_table(f"[{table}]  of {name}", keys))
    return "\n\n".join(part for part in parts if part)


def task_keys(task: str) -> dict[str, list[Key]]:
    """Return the keys of a task's own tables: data, model and loss."""
    from regard.tasks import TASKS

    tables = {name: settings_keys(kind) for name, kind in TASKS[task].tables}
    if task == "translate":
        tables["model"] = _model_keys()
    return tables


def settings_keys(kind: Any) -> list[Key]:
    """Return the keys of a settings class."""
    keys = []
    for name, field in kind.model_fields.items():
        required = field.is_required()
        default = "" if required else _toml(field.get_default(call_default_factory=True))
        about = field.description or ""
        keys.append(Key(name, _type(field.annotation), default, about))
    return keys


def _model_keys() -> list[Key]:
    """Return the options of `regard.models.build`, each with the kinds that take it."""
    from regard.core.score import BUILDERS
    from regard.models import PRESETS
    from regard.models.aligner import ALIGNERS
    from regard.models.build import KINDS, options_of

    about = {**MODEL, "score": ", ".join(BUILDERS), "attention": ", ".join(ALIGNERS)}
    kinds = [kind for kind in KINDS if kind != "language"]
    presets = sorted({preset for kind in kinds for preset in PRESETS.get(kind, {})})
    keys = [
        Key("kind", " | ".join(kinds), "luong", "the architecture"),
        Key("preset", " | ".join(presets), "", "sizes that the keys below may change"),
    ]
    for name in MODEL:
        takers = [kind for kind in kinds if name in options_of(kind)]
        values = {kind: _option(kind, name) for kind in takers}
        default = _toml(next(iter(values.values())))
        if len({*map(str, values.values())}) > 1:
            default = ""  # it depends on the kind
        of = "" if takers == kinds else f"of {', '.join(takers)}"
        known = {type(value) for value in values.values()} - {NoneType}
        type_ = _type(known.pop()) if len(known) == 1 else "int"
        keys.append(Key(name, type_, default, "; ".join(filter(None, (about[name], of)))))
    return keys


def _option(kind: str, name: str) -> Any:
    """Return the default of an option of a kind of model."""
    from regard.models.build import KINDS, RECURRENT

    if kind in RECURRENT:
        return RECURRENT[kind][1][name]
    default = inspect.signature(KINDS[kind]).parameters[name].default
    return None if default is inspect.Parameter.empty else default


def _table(title: str, keys: list[Key]) -> str:
    lines = [title] if title else []
    for key in keys:
        default = f" = {key.default}" if key.default else ""
        start = f"  {key.name:<{KEY}}{key.type}{default}"
        start = f"{start:<{KEY + VALUE}}  "
        indent = " " * (KEY + VALUE + 2)
        if key.about and len(start) > len(indent):
            lines.append(start.rstrip())
            start = indent
        lines += textwrap.wrap(
            key.about or "-", WIDTH, initial_indent=start, subsequent_indent=indent
        )
    return "\n".join(line.removesuffix("  -").rstrip() for line in lines) if keys else ""


def _type(annotation: Any) -> str:
    """Return a type as a user would write about it: `int`, `text`, `"a" | "b"`, `list of int`."""
    if get_origin(annotation) is typing.Annotated:
        return _type(get_args(annotation)[0])
    if get_origin(annotation) is Literal:
        return " | ".join(map(str, get_args(annotation)))
    if get_origin(annotation) in (typing.Union, UnionType):
        return " | ".join(_type(a) for a in get_args(annotation) if a is not NoneType)
    if get_origin(annotation) in (list, tuple):
        kinds = list(dict.fromkeys(_type(a) for a in get_args(annotation) if a is not Ellipsis))
        return f"list of {' | '.join(kinds)}"
    names = {str: "text", float: "number", bool: "true | false", int: "int"}
    return names.get(annotation, "text")


def _toml(value: Any) -> str:
    if value is None or value == {} or value is inspect.Parameter.empty:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return str(list(value) if isinstance(value, tuple) else value)
