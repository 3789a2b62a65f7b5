"""The log of a server: one JSON object a line, whoever writes it."""

import json
import logging
import sys
import threading
import time


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, event, and its fields."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line)


def log_to_stderr() -> None:
    """Write requests, and warnings and errors of anything, as lines of JSON to standard error.

    uvicorn, asyncio, Python's warnings and threads that fail all come this way.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel("WARNING")
    logging.getLogger("regard.serving").setLevel("INFO")
    logging.captureWarnings(True)

    def failed(thread: threading.ExceptHookArgs) -> None:
        error = thread.exc_value or thread.exc_type()
        root.error("a thread failed", exc_info=error)

    threading.excepthook = failed
