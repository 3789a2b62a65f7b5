"""`regard check`: look for broken attention in a model, for people and for test suites."""

from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.inputs import read_records
from regard.cli.options import Device, Json, Text, option
from regard.cli.output import write, write_json

SENTENCES = (
    "The animal didn't cross the street because it was too tired.",
    "A man is sleeping on the grass.",
)
"""What a checkpoint without data of its own reads."""


def check(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL", help="A run directory, or a folder with a Hugging Face checkpoint."
        ),
    ],
    inputs: Annotated[
        list[str] | None,
        typer.Argument(metavar="INPUT", help="Texts or files; by default test examples."),
    ] = None,
    ignore: Annotated[
        list[str] | None, option("A kind of finding to leave out; repeatable.", "KIND")
    ] = None,
    text: Text = False,
    as_json: Json = False,
    device: Device = "cpu",
) -> None:
    """Look for broken attention: masks, caches, positions, weights.

    The exit status is 1 if a finding is serious.
    """
    from regard.analysis import check
    from regard.tasks import PretrainedPredictor, load

    predictor = load(source, device=device)
    if inputs:
        records = read_records(inputs, predictor.task, text=text)
        parsed = [predictor.parse(record.content) for record in records]
    elif isinstance(predictor, PretrainedPredictor):
        parsed = list(SENTENCES)
    else:
        parsed = predictor.examples(3)
    report = check(predictor, model_inputs(predictor, parsed), ignore=ignore or ())
    if as_json:
        write_json(report.to_json(), indent=2)
    else:
        write(str(report))
    if report.is_serious:
        raise typer.Exit(1)


def model_inputs(predictor: Any, inputs: list[Any]) -> dict[str, Any]:
    """What the model of a predictor is called with for some inputs, by name.

    A translator gets its own translations, and a pretrained decoder the source as its target.

    Raises:
        ValueError: if it is not called as a whole, as those that look at single rows or nodes
    """
    from inspect import signature

    from regard.data import collate
    from regard.tasks import PretrainedPredictor, Translator

    if isinstance(predictor, PretrainedPredictor):
        return _tokenized(predictor, inputs)
    if isinstance(predictor, Translator) and predictor.source is not None:
        sources = [predictor.source.encode(each) for each in inputs]
        written = [found[0].tokens for found in predictor.search(inputs)]
        batch = collate(zip(sources, written, strict=True))
        names = ("source", "source_lengths", "target")
        return {name: getattr(batch, name).to(predictor.device) for name in names}
    calls: list[dict[str, Any]] = []

    def keep(model: Any, args: Any, options: Any) -> None:
        calls.append(signature(model.forward).bind(*args, **options).arguments)

    handle = predictor.model.register_forward_pre_hook(keep, with_kwargs=True)
    try:
        predictor.predict(inputs)
        if not calls:  # it writes step by step
            predictor.trace(inputs[0])
    finally:
        handle.remove()
    if not calls:
        raise ValueError(
            f"models of the task {predictor.task} are not called as a whole; call "
            "regard.check(model, inputs) in Python"
        )
    return calls[0]


def _tokenized(predictor: Any, inputs: list[str]) -> dict[str, Any]:
    if predictor.kind == "image":
        return dict(predictor.encode(inputs[0]))
    tokenizer = predictor.tokenizer
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    found = dict(tokenizer(inputs, padding=True, truncation=True, return_tensors="pt"))
    if predictor.kind == "encoder_decoder":
        found["decoder_input_ids"] = found["input_ids"]
    return {name: tensor.to(predictor.device) for name, tensor in found.items()}
