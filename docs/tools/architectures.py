"""Try every architecture of transformers and write the table of docs/hugging_face.md.

    python -m docs.tools.architectures [NAME ...]      (make architectures)

Each is built small, with random weights, and run on a padded batch, with gradients and cached
generation: attn_implementation="regard" against "eager".
"""

import importlib
import json
import multiprocessing
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import regard
from docs.tools.small_models import build, inputs_of, main_output, small_configs, text_inputs
from regard.trace import register_transformers

PAGE = Path(__file__).parents[1] / "hugging_face.md"
BEGIN, END = "<!-- architectures -->", "<!-- end -->"
SECONDS = 90  # for one architecture
TOLERANCE = 1e-5  # of outputs and maps, relative to the largest entry; gradients: ten times
NEW_TOKENS = 4
ATTENTIONS = (
    *("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions"),
    *("global_attentions", "language_attentions", "vision_attentions"),
)
HEADS = ("ForConditionalGeneration", "ForMaskedLM", "ForCausalLM", "LMHeadModel", "Model")
"""Endings of the classes of a folder, in the order in which they are tried."""


class OutOfTime(BaseException):  # which no check catches
    """An architecture took longer than `SECONDS`."""


@dataclass
class Row:
    """What was found about one architecture; an empty text: not tried."""

    name: str  # of its folder
    model: str = ""  # the class
    outputs: str = ""
    gradients: str = ""
    maps: str = ""
    generation: str = ""
    note: str = ""


def architectures() -> list[str]:
    """The folders of transformers with a configuration."""
    from transformers import CONFIG_MAPPING

    folders = set()
    for kind in CONFIG_MAPPING:
        try:
            folders.add(CONFIG_MAPPING[kind].__module__.split(".")[2])
        except Exception:  # a configuration that needs what is not installed
            continue
    return sorted(folders - {"auto", "deprecated"})


def attempt(name: str) -> Row:
    """Try the first model of a folder that can be built small and run."""
    reasons = []
    for model_class in candidates(name):
        try:
            found = _runs(model_class)
        except Exception as error:
            reasons.append(f"{model_class.__name__}: {_reason(error)}")
            continue
        return _compared(Row(name, model_class.__name__), model_class, *found)
    return Row(name, note=f"not built: {reasons[0] if reasons else 'it has no model to build'}")


def candidates(name: str) -> list[Any]:
    """The model classes of a folder: those that generate first, then the plain ones."""
    import transformers.models
    from transformers import PreTrainedModel

    folder = Path(transformers.models.__path__[0]) / name
    modules = [
        importlib.import_module(f"transformers.models.{name}.{file.stem}")
        for file in sorted(folder.glob("modeling_*.py"))
    ]
    own = [
        each
        for module in modules
        for each in vars(module).values()
        if isinstance(each, type)
        and issubclass(each, PreTrainedModel)
        and each.__module__ == module.__name__
        and each.config_class is not None
        and not each.__name__.endswith("PreTrainedModel")
    ]

    def rank(model: type) -> tuple[int, int]:
        endings = [place for place, end in enumerate(HEADS) if model.__name__.endswith(end)]
        return endings[0] if endings else len(HEADS), len(model.__name__)

    return sorted(own, key=rank)[:8]


def _runs(model_class: Any) -> tuple[Any, dict[str, Any]]:
    """A small configuration and inputs with which the eager model runs, and attends unevenly.

    Raises:
        Exception: of the smallest configuration, if it runs with none
    """
    first: Exception | None = None
    for config in small_configs(model_class.config_class):
        try:
            model = build(model_class, config, "eager")
            for inputs in inputs_of(model):
                try:
                    output = main_output(_forward(model, inputs))
                    if not torch.isfinite(_real(output, inputs)).all():
                        raise ValueError("its output is not finite")
                    return config, inputs
                except Exception as error:
                    first = first or error
        except Exception as error:
            first = first or error
    raise first or ValueError("no inputs are known for it")


def _compared(row: Row, model_class: Any, config: Any, inputs: dict[str, Any]) -> Row:
    eager = build(model_class, config, "eager")
    register_transformers()
    try:
        ours = build(model_class, config, "regard")
    except ValueError as error:
        if "attn_implementation='regard'" not in str(error):
            raise
        row.outputs, row.note, ours = "refused", "selects its attention from a table", eager
    else:
        for name, differ in (("outputs", _outputs_differ), ("gradients", _gradients_differ)):
            found = _stated(partial(differ, eager, ours, inputs))
            if found.startswith("differs"):  # of rounding?
                double = [build(model_class, config, each).double() for each in ("eager", "regard")]
                exact = {k: v.double() if v.is_floating_point() else v for k, v in inputs.items()}
                found = f"{_stated(partial(differ, *double, exact))} in float64"
            setattr(row, name, found)
    row.maps = _stated(lambda: _maps(eager, ours, inputs))
    if ours is not eager and eager.can_generate() and "input_ids" in inputs:
        row.generation = _stated(lambda: _generation_differs(eager, ours, inputs))
    return row


def _stated(check: Callable[[], str | float]) -> str:
    """What a check found: equal, by how much it differs, or the error."""
    try:
        found = check()
    except Exception as error:
        return f"error: {_reason(error)}"
    if isinstance(found, str):
        return found
    return "equal" if found <= 1 else f"differs by {found * TOLERANCE:.0e}"


def _forward(model: Any, inputs: dict[str, Any], **options: Any) -> Any:
    torch.manual_seed(5)  # of models that mask at random
    with torch.no_grad():
        return model(**inputs, **options)


def _real(output: Tensor, inputs: dict[str, Any]) -> Tensor:
    """The part of an output that is not of padding."""
    mask = inputs.get("attention_mask")
    if mask is None or "decoder_input_ids" in inputs or output.dim() < 3:
        return output
    mask = mask[:, -output.shape[1] :]  # some leave the first token out
    return output[mask.bool()] if output.shape[:2] == mask.shape else output


def _difference(found: Tensor, expected: Tensor) -> float:
    """The largest difference in tolerances; NaN counts as infinite."""
    scale = expected.abs().max().clamp(min=1e-3)
    value = float((found - expected).abs().max() / scale / TOLERANCE) if found.numel() else 0.0
    return value if value == value else float("inf")


def _outputs_differ(eager: Any, ours: Any, inputs: dict[str, Any]) -> float:
    expected, found = (_real(main_output(_forward(m, inputs)), inputs) for m in (eager, ours))
    return _difference(found, expected)


def _gradients_differ(eager: Any, ours: Any, inputs: dict[str, Any]) -> float:
    gradients = []
    for model in (eager, ours):
        torch.manual_seed(5)
        output = _real(main_output(model(**inputs)), inputs)
        noise = torch.randn(output.shape, generator=torch.Generator().manual_seed(9))
        parameters = [each for each in model.parameters() if each.requires_grad]
        gradients.append(torch.autograd.grad((output * noise).sum(), parameters, allow_unused=True))
    pairs = [(a, b) for a, b in zip(*gradients, strict=True) if a is not None or b is not None]
    largest = max(float(a.abs().max()) for a, _ in pairs if a is not None and a.numel())
    worst = 0.0
    for a, b in pairs:
        if a is None or b is None:
            other = a if b is None else b
            assert other is not None
            a, b = other, torch.zeros_like(other)
        if a.numel():
            worst = max(worst, float((a - b).abs().max() / max(largest, 1e-3)))
    worst = worst / TOLERANCE / 10
    return worst if worst == worst else float("inf")


def _maps(eager: Any, ours: Any, inputs: dict[str, Any]) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(5)
        with torch.no_grad(), regard.capture(ours) as trace:
            ours(**inputs)
    missed = f", {len(trace.missed)} listed as missed" if trace.missed else ""
    if not len(trace):
        return f"none{missed}" if missed else "no attention"
    output = _forward(eager, inputs, output_attentions=True)
    named = output if isinstance(output, dict) else {}
    expected = [map for name in ATTENTIONS for map in _tensors(named.get(name))]
    recorded = [call.map.dense() for call in trace.calls]
    left, equal = list(recorded), 0
    for map in expected:
        place = next((i for i, own in enumerate(left) if _same_map(own, map, inputs)), None)
        if place is not None:
            left.pop(place)
            equal += 1
    if not expected:
        wrong = sum(not call.verify() < 1e-4 for call in trace.calls)
        result = f"{len(recorded)} verified" if not wrong else f"{wrong} of {len(recorded)} differ"
    elif equal == len(expected):
        result = "equal" if not left else f"equal, and {len(left)} more"
    else:
        wrong = sum(not call.verify() < 1e-4 for call in trace.calls)
        result = f"{equal} of {len(expected)} equal, {len(recorded) - wrong} verified"
    return result + missed


def _tensors(maps: Any) -> Iterator[Tensor]:
    if isinstance(maps, Tensor):
        yield maps
    elif isinstance(maps, list | tuple):
        for each in maps:
            yield from _tensors(each)


def _same_map(found: Tensor, expected: Tensor, inputs: dict[str, Any]) -> bool:
    if found.shape != expected.shape:
        return False
    mask = inputs.get("attention_mask")
    if mask is not None and found.dim() == 4 and mask.shape == (len(found), found.shape[2]):
        rows = mask.bool()[:, None].expand(found.shape[:-1])
        found, expected = found[rows], expected[rows]
    return _difference(found, expected) <= 1


def _generation_differs(eager: Any, ours: Any, inputs: dict[str, Any]) -> str | float:
    pair = eager.config.is_encoder_decoder
    given = {k: v for k, v in inputs.items() if k != "decoder_input_ids"}
    if not pair:
        given |= text_inputs(left=True)
    options: dict[str, Any] = {
        "max_new_tokens": NEW_TOKENS,
        "min_new_tokens": NEW_TOKENS,
        "do_sample": False,
        "num_beams": 1,
        "return_dict_in_generate": True,
        "output_logits": True,
    }
    ids = {"pad_token_id": 0} | ({"decoder_start_token_id": 1} if pair else {})
    results = []
    for model in (eager, ours):
        for name, number in ids.items():
            setattr(model.generation_config, name, number)
        torch.manual_seed(5)
        results.append(model.generate(**given, **options))
    if not torch.equal(results[0].sequences, results[1].sequences):
        return "other tokens"
    return _difference(*(torch.stack(each.logits) for each in reversed(results)))


def _reason(error: BaseException) -> str:
    """An error on one line, short."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= 120 else f"{text[:119]}…"


# ------------------------------------------------------------------------------ all of them


def try_all(names: Sequence[str], report: Callable[[Row], None]) -> list[Row]:
    """Try architectures in a process of their own, which is started again after a crash."""
    rows: list[Row] = []
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.jsonl"
        while len(rows) < len(names):
            file.write_text("")
            process = context.Process(target=_worker, args=(list(names[len(rows) :]), str(file)))
            process.start()
            done = 0
            while process.is_alive():
                process.join(1)
                done = _collect(file, done, rows, report)
            done = _collect(file, done, rows, report)
            if process.exitcode and len(rows) < len(names):
                reason = signal.strsignal(abs(process.exitcode)) or str(process.exitcode)
                row = Row(names[len(rows)], note=f"not tried: it ended the process: {reason}")
                rows.append(row)
                report(row)
    return rows


def _collect(file: Path, done: int, rows: list[Row], report: Callable[[Row], None]) -> int:
    lines = [line for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")]
    for line in lines[done:]:
        rows.append(Row(**json.loads(line)))
        report(rows[-1])
    return len(lines)


def _worker(names: list[str], file: str) -> None:
    import transformers

    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    warnings.simplefilter("ignore")
    for name in names:
        row = limited(name)
        with open(file, "a") as lines:
            lines.write(json.dumps(asdict(row)) + "\n")


def limited(name: str) -> Row:
    """Try an architecture for `SECONDS` at most."""

    def stop(*_: Any) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        return attempt(name)
    except OutOfTime:
        return Row(name, note=f"not tried: it takes over {SECONDS} seconds")
    except Exception as error:
        return Row(name, note=f"not tried: {_reason(error)}")
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def cells(row: Row) -> list[str]:
    """The cells of a row of the table."""
    return [str(value).replace("|", "/").strip() for value in asdict(row).values()]


def table(rows: Sequence[Row]) -> str:
    """The table of the page, with its totals."""
    import transformers

    tried = [row for row in rows if row.outputs]
    lines = [
        f"Of the {len(rows)} model folders of transformers {transformers.__version__}, "
        f"{len(tried)} were built small and tried.",
        "",
        "| | equal to eager | refused | differs or fails |",
        "|---|--:|--:|--:|",
    ]
    for name in ("outputs", "gradients", "generation"):
        values = [getattr(row, name) for row in tried if getattr(row, name)]
        good = sum(value.startswith("equal") for value in values)
        refused = values.count("refused")
        lines.append(f"| {name} | {good} | {refused} | {len(values) - good - refused} |")
    kinds = {
        "all maps equal those that eager returns": lambda m: (
            m.startswith("equal") and "missed" not in m
        ),
        "eager returns none; weights · values is the output": lambda m: (
            "verified" in m and "missed" not in m
        ),
        "some or none recorded, the others listed in `trace.missed`": lambda m: "missed" in m,
        "no attention": lambda m: m == "no attention",
    }
    lines += ["", "| maps under `capture` | |", "|---|--:|"]
    counted = 0
    for text, test in kinds.items():
        count = sum(bool(test(row.maps)) for row in tried)
        counted += count
        lines.append(f"| {text} | {count} |")
    lines.append(f"| other | {len(tried) - counted} |")
    lines += [
        "",
        "| folder | model | outputs | gradients | maps | generation | |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [f"| {' | '.join(cells(row))} |" for row in rows]
    return "\n".join(lines)


def _kind_of_maps(maps: str) -> str:
    if "missed" in maps or maps == "no attention":
        return "missed" if "missed" in maps else maps
    return "equal" if maps.startswith("equal") else "verified" if "verified" in maps else "other"


def read_table() -> dict[str, Row]:
    """The rows of the page, by the name of the folder."""
    lines = PAGE.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0].splitlines()
    found = [[cell.strip() for cell in line[1:-1].split("|")] for line in lines]
    rows = [Row(*cells) for cells in found if len(cells) == len(fields(Row))]
    return {row.name: row for row in rows[2:]}  # after the heading


def main(names: Sequence[str]) -> None:
    """Try architectures, all or those named, and write their rows into the page."""
    rows = read_table() if names else {}
    for row in try_all(
        list(names) or architectures(),
        lambda row: print("  ".join(str(v) for v in asdict(row).values() if v), flush=True),
    ):
        rows[row.name] = row
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    page = table([rows[name] for name in sorted(rows)])
    PAGE.write_text(f"{before}{BEGIN}\n\n{page}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
