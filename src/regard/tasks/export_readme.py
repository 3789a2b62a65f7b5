"""The README of an export: what it is, and code that calls it, with regard and without."""

from typing import Any

from regard.tasks.predictor import Predictor

INTRODUCTION = """\
# {name} for {runtime}

The model of a run of the task {task}, written by `regard export`, in {dtype}. Tokenizers, classes
and configuration are those of the run; `manifest.json` has the checksum of every file.
"""

WITH_REGARD = """
`regard predict .`, `regard evaluate .` and `regard serve .` take this directory like a run, and
so does Python:

```python
import regard

model = regard.load(".")
print(model.predict(model.examples(1)))
```
"""

TRANSLATE_ONNX = """
Without regard's decoding, greedy search is a loop over `step.onnx`:

```python
import numpy as np
import onnxruntime
from regard.data import load_tokenizer

encoder = onnxruntime.InferenceSession("encoder.onnx")
step = onnxruntime.InferenceSession("step.onnx")
{read}
lengths = np.array([source.shape[1]])
names = [each.name for each in encoder.get_outputs()]
memory = dict(zip(names, encoder.run(None, {{"source": source, "lengths": lengths}})))
memory["lengths"] = lengths
target, token = load_tokenizer("tokenizer.target.json"), 1  # begin of sequence
written = []
while token != 2 and len(written) < 100:  # end of sequence
    inputs = {{each.name for each in step.get_inputs()}}
    given = {{"tokens": np.array([token]), **memory}}
    found = step.run(None, {{name: given[name] for name in inputs}})
    new = dict(zip([each.name for each in step.get_outputs()], found))
    memory |= {{name.removeprefix("new_"): value for name, value in new.items()}}
    token = int(new["logits"][0].argmax())
    written.append(token)
print(target.decode(written))
```

`weights.N` of a step is the attention of each head to the source, (batch, heads, source).
"""

TRANSLATE_CTRANSLATE2 = """
Without regard's decoding (tokens are named after their ids, since two may look alike):

```python
import ctranslate2
from regard.data import load_tokenizer

translator = ctranslate2.Translator(".")
source, target = load_tokenizer("tokenizer.source.json"), load_tokenizer("tokenizer.target.json")
found = translator.translate_batch([[f"t{{i}}" for i in source.encode({text!r})]])
print(target.decode([int(token[1:]) for token in found[0].hypotheses[0]]))
```

With `return_attention=True` it returns the average of the heads of the last layer.
"""

MODEL = """
The inputs and outputs of the graph {names}, with sizes of any number by name:

```python
import onnxruntime

session = onnxruntime.InferenceSession("{file}")
print([(each.name, each.shape) for each in session.get_inputs()])
print([(each.name, each.shape) for each in session.get_outputs()])
```
"""

PROGRAM = """
Load the programs with PyTorch, from a source that you trust: the format unpickles.

```python
import torch

program = torch.export.load("{file}")
print(program.graph_signature)
```
"""

RUNTIMES = {"ctranslate2": "CTranslate2", "onnx": "ONNX", "torch": "torch.export"}


def readme(predictor: Predictor, name: str, about: dict[str, Any]) -> str:
    """Return the README of an export.

    Args:
        name: of the run
        about: `target` and `dtype` of the export, and "files", the names of its graphs
    """
    target = about["target"]
    runtime = RUNTIMES[target]
    text = INTRODUCTION.format(
        name=name, runtime=runtime, task=predictor.task, dtype=about["dtype"]
    )
    if target == "torch":
        return text + PROGRAM.format(file=about["files"][0])
    text += WITH_REGARD
    if target == "ctranslate2":
        return text + TRANSLATE_CTRANSLATE2.format(text="a b c")
    if predictor.task == "translate":
        frames = getattr(predictor, "source", None) is None
        read = "source = np.zeros((1, 7, WIDTH), np.float32)  # your frames"
        if not frames:
            read = (
                'ids = load_tokenizer("tokenizer.source.json").encode("a b c")\n'
                "source = np.array([ids])"
            )
        return text + TRANSLATE_ONNX.format(read=read)
    return text + MODEL.format(names=about["files"][0], file=about["files"][0])
