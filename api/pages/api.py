"""The API as a page, made from the OpenAPI document that generated clients use; it loads nothing from other hosts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from tilewise.api.pages.rendering import page

__all__ = ["Operation", "api", "operations"]

_METHODS = ("get", "post", "put", "patch", "delete")


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation. `answers` holds a status, its description and the name of its schema each."""

    id: str
    method: str
    path: str
    summary: str
    description: str
    right: str
    parameters: Sequence[Mapping[str, Any]]
    body: str
    answers: Sequence[tuple[str, str, str]]


async def api(request: Request) -> Response:
    """Show every operation with its parameters and answers, and every schema."""
    document = request.app.openapi()
    groups: dict[str, list[Operation]] = {}
    for tag, operation in operations(document):
        groups.setdefault(tag, []).append(operation)
    schemas = {
        name: json.dumps(schema, indent=2, ensure_ascii=False)
        for name, schema in sorted(document["components"]["schemas"].items())
    }
    return page("api.html", here="api", groups=groups, schemas=schemas, version=document["info"]["version"])


def operations(document: Mapping[str, Any]) -> Iterator[tuple[str, Operation]]:
    """Yield the operations of an OpenAPI document, each with its first tag."""
    for path, methods in document["paths"].items():
        for method in _METHODS:
            if method in methods:
                found = methods[method]
                yield next(iter(found.get("tags", ["other"]))), _operation(path, method, found)


def _operation(path: str, method: str, found: Mapping[str, Any]) -> Operation:
    security = found.get("security", [])
    return Operation(
        id=found["operationId"],
        method=method.upper(),
        path=path,
        summary=found.get("summary", ""),
        description=found.get("description", ""),
        right="" if not security else "may need a token" if {} in security else "needs a token",
        parameters=[{**each, "kind": _kind(each["schema"])} for each in found.get("parameters", [])],
        body=_schema_of(found.get("requestBody", {})),
        answers=[
            (status, answer["description"], _schema_of(answer)) for status, answer in sorted(found["responses"].items())
        ],
    )


def _schema_of(part: Mapping[str, Any]) -> str:
    """Return the name of the first schema that a body or an answer refers to."""
    for content in part.get("content", {}).values():
        return _reference(content.get("schema") or content.get("x-item-schema") or {})
    return ""


def _reference(schema: Mapping[str, Any]) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _kind(schema: Mapping[str, Any]) -> str:
    """Return a parameter's type and limits in a few words."""
    words = [_reference(schema) or str(schema.get("type", ""))]
    if "enum" in schema:
        words.append("one of " + ", ".join(map(str, schema["enum"])))
    if "minimum" in schema and "maximum" in schema:
        words.append(f"from {schema['minimum']} to {schema['maximum']}")
    if "default" in schema:
        words.append(f"by default {schema['default']}")
    return ", ".join(filter(None, words))
