"""Logs as JSON lines on stderr: one object per line, with the request's id if there is one."""

from __future__ import annotations

import json
import logging
import time
from typing import Any

__all__ = ["LEVELS", "configure"]

LEVELS = ("debug", "info", "warning", "error")

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}


class JsonLines(logging.Formatter):
    """A formatter that writes `time`, `level`, `logger`, `message`, the `extra` fields, and an error's `traceback`."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{moment}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _PLAIN}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def configure(level: str) -> None:
    """Log to stderr from `level` up; uvicorn, asyncio and alembic only from `warning` up."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for noisy in ("uvicorn", "asyncio", "alembic"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
