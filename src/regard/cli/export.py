"""`regard export`: a trained model for another runtime."""

from pathlib import Path
from typing import Annotated

from regard.cli.inputs import read_records
from regard.cli.options import Run, option


def export(
    run: Run,
    to: Annotated[str, option("ctranslate2 or onnx.", "TARGET")],
    out: Annotated[
        Path | None, option("New directory. [default: RUN-TARGET]", "DIR", file_okay=False)
    ] = None,
    dtype: Annotated[str, option("ctranslate2: float32, int8 or bfloat16.", "TYPE")] = "float32",
    data: Annotated[
        Path | None,
        option("Inputs to compare with. [default: data of the run]", "FILE", dir_okay=False),
    ] = None,
) -> None:
    """Export the model of a run, and compare the export with it.

    ctranslate2 takes Transformers that translate. onnx takes translation, language models, and
    classifiers of documents, pairs and images. regard predict, evaluate and serve take the
    directory of an export like a run.
    """
    from regard.tasks import load
    from regard.tasks.export import export as export_run

    inputs = None
    if data is not None:
        predictor = load(run)
        records = read_records([str(data)], predictor.task)
        inputs = [predictor.parse(record.content) for record in records]
    print(export_run(run, to, out, dtype=dtype, inputs=inputs))
