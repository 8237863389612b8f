"""The lines of the log, and from which level on they are written."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tilewise.api.http.logs import JsonLines, configure


def line(message="tuned %d shapes", *given, level=logging.INFO, error=None, **fields):
    record = logging.LogRecord("tilewise.api", level, "file.py", 7, message, given, error)
    record.created = datetime(2026, 11, 23, 4, 5, 6, tzinfo=UTC).timestamp()
    record.msecs = 7.9
    vars(record).update(fields)
    return JsonLines().format(record)


def test_a_line_is_an_object_of_its_time_level_logger_message_and_own_fields():
    text = line("tuned %d shapes", 3, level=logging.WARNING, request="ab12", color_message="no field")
    assert json.loads(text) == {
        "time": "2026-11-23T04:05:06.007Z",
        "level": "warning",
        "logger": "tilewise.api",
        "message": "tuned 3 shapes",
        "request": "ab12",
    }
    assert "\n" not in line("two\nlines")


def test_a_field_that_is_no_json_is_written_as_text_and_letters_as_they_are():
    text = line("größer", place=Path("folder/file"))
    assert json.loads(text)["place"] == "folder/file" and "größer" in text


def test_an_error_has_its_traceback():
    try:
        raise ValueError("no such thing")
    except ValueError:
        found = json.loads(line("it failed", error=sys.exc_info()))["traceback"]
    assert found.startswith("Traceback (most recent call last):") and found.endswith("ValueError: no such thing")


@pytest.mark.parametrize("level", ["debug", "warning"])
def test_libraries_are_heard_from_warnings_up_and_the_rest_from_the_level_that_is_set(level, monkeypatch, capsys):
    root = logging.getLogger()
    noisy = [logging.getLogger(name) for name in ("uvicorn", "asyncio", "alembic")]
    handlers, levels = root.handlers[:], {logger: logger.level for logger in (root, *noisy)}
    monkeypatch.setattr(root, "handlers", [])
    for logger in noisy:  # uvicorn sets up its own where a test before ran a server here
        monkeypatch.setattr(logger, "handlers", [])
        monkeypatch.setattr(logger, "propagate", True)
    try:
        configure(level)
        logging.getLogger("tilewise").debug("a detail")
        logging.getLogger("tilewise").warning("a warning")
        for logger in noisy:
            logger.info("a detail")
            logger.warning("a warning")
    finally:
        root.handlers = handlers
        for logger, before in levels.items():
            logger.setLevel(before)
    heard = [(each["logger"], each["level"]) for each in map(json.loads, capsys.readouterr().err.splitlines())]
    wanted = [("tilewise", "warning"), *((logger.name, "warning") for logger in noisy)]
    assert heard == ([("tilewise", "debug")] if level == "debug" else []) + wanted
