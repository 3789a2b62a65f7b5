"""Record what a model attends to, store it, and edit it."""

from regard.trace.adapters.hugging_face import register_transformers
from regard.trace.call import Call, Inputs
from regard.trace.capture import capture
from regard.trace.edit import edit
from regard.trace.file import load_trace, save_trace
from regard.trace.missed import Missed
from regard.trace.trace import Trace

__all__ = [
    "Call",
    "Inputs",
    "Missed",
    "Trace",
    "capture",
    "edit",
    "load_trace",
    "register_transformers",
    "save_trace",
]
