"""The page of the API: what it says of operations, parameters and answers."""

from __future__ import annotations

import html
import json

import pytest

from tilewise.api.pages.api import Operation, _kind, operations


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "string"}, "string"),
        ({"$ref": "#/components/schemas/Result"}, "Result"),
        ({"type": "integer", "minimum": 1, "maximum": 200, "default": 50}, "integer, from 1 to 200, by default 50"),
        ({"type": "integer", "minimum": 1}, "integer"),
        ({"type": "integer", "maximum": 9}, "integer"),
        ({"enum": ["exact", "nearest"], "default": "exact"}, "one of exact, nearest, by default exact"),
        ({"type": "boolean", "default": False}, "boolean, by default False"),
        ({}, ""),
    ],
)
def test_a_parameter_is_its_type_and_limits_in_a_few_words(schema, words):
    assert _kind(schema) == words


def test_operations_are_in_the_order_of_paths_and_methods_with_their_first_tags():
    answer = {"description": "it is found", "content": {"application/json": {"schema": {"$ref": "#/x/Result"}}}}
    events = {"description": "a stream", "content": {"text/event-stream": {"x-item-schema": {"$ref": "#/x/Event"}}}}
    query = {"name": "limit", "schema": {"type": "integer"}}
    document = {
        "paths": {
            "/b": {
                "delete": {"operationId": "drop", "responses": {}, "security": [{"token": []}]},
                "get": {
                    "operationId": "read",
                    "summary": "Read",
                    "description": "Reads.",
                    "tags": ["jobs", "others"],
                    "parameters": [query],
                    "security": [{}, {"token": []}],
                    "responses": {"404": {"description": "it is not"}, "200": answer},
                },
            },
            "/a": {"post": {"operationId": "send", "requestBody": answer, "responses": {"200": events}}, "head": {}},
        }
    }
    assert list(operations(document)) == [
        (
            "jobs",
            Operation(
                "read",
                "GET",
                "/b",
                "Read",
                "Reads.",
                "may need a token",
                [{**query, "kind": "integer"}],
                "",
                [("200", "it is found", "Result"), ("404", "it is not", "")],
            ),
        ),
        ("other", Operation("drop", "DELETE", "/b", "", "", "needs a token", [], "", [])),
        ("other", Operation("send", "POST", "/a", "", "", "", [], "Result", [("200", "a stream", "Event")])),
    ]


def test_a_schema_is_shown_as_json_of_two_spaces(client):
    page = html.unescape(client.get("/docs").text)
    name, schema = next(iter(sorted(client.get("/openapi.json").json()["components"]["schemas"].items())))
    assert f'aria-label="{name}">{json.dumps(schema, indent=2, ensure_ascii=False)}</pre>' in page
