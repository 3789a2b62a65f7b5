"""Models in the formats of other runtimes: CTranslate2, ONNX and `torch.export`."""

from regard.export.ctranslate2 import TYPES, CTranslate2Model, write_ctranslate2
from regard.export.folder import copy_run, load_exported, read_export, seal
from regard.export.onnx import write_onnx
from regard.export.program import write_program

__all__ = [
    "TYPES",
    "CTranslate2Model",
    "copy_run",
    "load_exported",
    "read_export",
    "seal",
    "write_ctranslate2",
    "write_onnx",
    "write_program",
]
