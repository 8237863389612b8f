"""Findings as SARIF 2.1.0 (OASIS standard), the format in which code hosts take results of static analysis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tilewise
from tilewise.db.records import shape_text
from tilewise.tuner.devices.ascend_model.lint.finding import RULES

__all__ = ["sarif"]

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def sarif(results: Sequence[Mapping[str, Any]], folder: Path) -> dict[str, Any]:
    """Return one run with the findings of these results of `tilewise lint --json`; files below `folder` have relative
    paths."""
    rules = [
        {
            "id": rule.id,
            "shortDescription": {"text": rule.summary},
            "fullDescription": {"text": rule.help},
            "defaultConfiguration": {"level": rule.level},
        }
        for rule in RULES.values()
    ]
    driver = {"name": "tilewise lint", "version": tilewise.__version__, "rules": rules}
    found = [_result(body, finding, folder) for body in results for finding in body["findings"]]
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": found}]}


def _result(body: Mapping[str, Any], finding: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    of = f"{body['kernel']} {shape_text(body['dims'])} {body['dtype']} on {body['device']}"
    result: dict[str, Any] = {
        "ruleId": finding["rule"],
        "ruleIndex": list(RULES).index(finding["rule"]),
        "level": finding["level"],
        "message": {"text": f"{of}: {finding['message']}. Remedy: {finding['remedy']}."},
        "locations": [_location(finding["file"], finding["line"], folder)] if "file" in finding else [],
    }
    if "cause" in finding:
        note = {"message": {"text": finding["cause_source"]}}
        result["relatedLocations"] = [_location(finding["cause_file"], finding["cause"], folder) | note]
    costs = {name: finding[name] for name in ("modelled_cost_us", "share") if name in finding}
    return result | ({"properties": costs} if costs else {})


def _location(file: str, line: str, folder: Path) -> dict[str, Any]:
    path = Path(file).resolve()
    uri = path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.as_uri()
    region = {"startLine": int(line.rpartition(":")[2])}
    return {"physicalLocation": {"artifactLocation": {"uri": uri}, "region": region}}
