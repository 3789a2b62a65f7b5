"""Models in the formats of other runtimes, CTranslate2 and ONNX."""

from regard.export.ctranslate2 import TYPES, CTranslate2Model, write_ctranslate2
from regard.export.folder import copy_run, load_exported, read_export, seal
from regard.export.onnx import write_onnx
from regard.export.standalone import TEMPLATES, write_tokenizer_reader

__all__ = [
    "TEMPLATES",
    "TYPES",
    "CTranslate2Model",
    "copy_run",
    "load_exported",
    "read_export",
    "seal",
    "write_ctranslate2",
    "write_onnx",
    "write_tokenizer_reader",
]
