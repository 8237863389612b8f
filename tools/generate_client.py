"""Generation of the service's Python client from its OpenAPI document.

`python tools/generate_client.py src/tilewise/client.py` writes that module; a test checks that it is up to date.

The client uses the document's names: an operation's id becomes a method, a schema a type. The members of a body become
parameters like those of the path and the query. A response that holds nothing but a list is returned as that list. An
operation with a link to itself is paged. A schema marked with `x-file` is passed as bytes.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

__all__ = ["client_source"]

_WIDTH = 120
_PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}

_Schema = Mapping[str, Any]


def client_source(document: Mapping[str, Any]) -> str:
    """Return the module's text, not yet formatted by ruff; raise `ValueError` for a schema without a Python type."""
    forms = _Forms(document["components"]["schemas"])
    operations = [
        _operation(forms, path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"docstring": _docstring, "sentence": _sentence}
    named = forms.named()  # after all operations have recorded the types that they need
    return environment.get_template("client.jinja").render(named=named, operations=operations)


class _Forms:
    """The document's schemas as Python types."""

    def __init__(self, schemas: Mapping[str, _Schema]) -> None:
        self._schemas = schemas
        self._used: set[str] = set()

    def of(self, schema: _Schema) -> str:
        """Return the schema's type, with read-only containers, so that callers may pass any kind of them."""
        if "$ref" in schema:
            name = _name(schema)
            if "x-file" in self._schemas[name]:
                return "bytes"
            self._used.add(name)
            return name
        if "anyOf" in schema:
            return " | ".join(dict.fromkeys(map(self.of, schema["anyOf"])))
        if choices := schema.get("enum") or [schema[key] for key in ("const",) if key in schema]:
            return f"Literal[{', '.join(map(repr, choices))}]"
        if schema.get("type") == "array":
            return f"Sequence[{self.of(schema['items'])}]"
        if schema.get("type") == "object":
            values = schema["additionalProperties"]
            return f"Mapping[str, {'Any' if values is True else self.of(values)}]"
        if not schema.keys() - {"title", "description"}:
            return "Any"
        if schema.get("type") not in _PLAIN:
            raise ValueError(f"no Python type is known for {dict(schema)}")
        return _PLAIN[schema["type"]]

    def resolved(self, schema: _Schema) -> _Schema:
        return self._schemas[_name(schema)] if "$ref" in schema else schema

    def named(self) -> list[dict[str, Any]]:
        """Return the declarations: first aliases of plain types, then types with fields."""
        declared: dict[str, dict[str, Any]] = {}
        while left := self._used - declared.keys():  # fields may use further types
            declared |= {name: self._declared(name) for name in left}
        return sorted(declared.values(), key=lambda each: ("fields" in each, each["name"]))

    def _declared(self, name: str) -> dict[str, Any]:
        schema = self._schemas[name]
        head = {"name": name, "about": schema.get("description", "")}
        if "properties" not in schema:
            return {**head, "form": self.of(schema)}
        fields = [
            {
                "name": field,
                "form": self.of(each) if field in schema.get("required", ()) else f"NotRequired[{self.of(each)}]",
                "about": each.get("description", ""),
            }
            for field, each in schema["properties"].items()
        ]
        return {**head, "fields": fields}


def _name(schema: _Schema) -> str:
    return str(schema["$ref"]).rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class _Parameter:
    """A method's parameter, required if it has no default. `place` is where it is sent: path, query, body, or `file`
    for the whole body."""

    name: str
    form: str
    place: str
    about: str
    default: str | None = None

    @property
    def sent(self) -> str:
        """The parameter as a member of the query or body; a mapping in the query is spread."""
        spread = self.place == "query" and self.form.startswith("Mapping")
        return f"**{self.name}" if spread else f"{self.name!r}: {self.name}"


def _operation(forms: _Forms, path: str, method: str, operation: Mapping[str, Any]) -> dict[str, Any]:
    """Return the template's data for an operation."""
    success = next(response for status, response in operation["responses"].items() if status.startswith("2"))
    cursor = _cursor(operation["operationId"], success)
    parameters = [each for each in _parameters(forms, operation) if not cursor or each.name != cursor[0]]
    address = f"f{path!r}" if "{" in path else repr(path)
    sent = [repr(method.upper()), re.sub(r"{(\w+)}", r"{part(\1)}", address), *_sent(parameters)]
    form, call = _answer(forms, success["content"], sent, cursor)
    return {
        "name": operation["operationId"],
        "required": [each for each in parameters if each.default is None],
        "optional": [each for each in parameters if each.default is not None],
        "returns": form,
        "call": call,
        "about": _about(operation, parameters),
    }


def _parameters(forms: _Forms, operation: Mapping[str, Any]) -> Iterator[_Parameter]:
    for each in operation.get("parameters", ()):
        yield _parameter(forms, each["name"], each["schema"], each["in"], each["required"], each["description"])
    if "requestBody" in operation:
        body = forms.resolved(operation["requestBody"]["content"]["application/json"]["schema"])
        if "x-file" in body:
            yield _Parameter("data", "bytes", "file", "the file's content")
            return
        for name, each in body["properties"].items():
            yield _parameter(forms, name, each, "body", name in body["required"], each.get("description", ""))


def _parameter(forms: _Forms, name: str, schema: _Schema, place: str, required: bool, about: str) -> _Parameter:
    form, default = forms.of(schema), repr(schema.get("default"))
    if required:
        return _Parameter(name, form, place, about)
    if default == "None":
        form = f"{form.removesuffix(' | None')} | None"
    return _Parameter(name, form, place, about, default)


def _sent(parameters: list[_Parameter]) -> Iterator[str]:
    """Yield the keyword arguments of the method's call."""
    for place, argument in (("query", "params"), ("body", "body")):
        if members := [each.sent for each in parameters if each.place == place]:
            yield f"{argument}={{{', '.join(members)}}}"
    yield from (f"body={each.name}" for each in parameters if each.place == "file")


def _answer(
    forms: _Forms, content: Mapping[str, _Schema], sent: list[str], cursor: tuple[str, str] | None
) -> tuple[str, str]:
    """Return the type and the expression of the method's result."""
    arguments = ", ".join(sent)
    if stream := content.get("text/event-stream"):
        data = stream["x-item-schema"]["properties"]["data"]["contentSchema"]
        return f"Iterator[{forms.of(data)}]", f"self._events({arguments})"
    if "application/json" not in content:
        return "str", f"self._send({arguments}).text"
    schema = content["application/json"]["schema"]
    members = forms.resolved(schema)["properties"]
    lists = [name for name, member in members.items() if member.get("type") == "array"]
    if cursor:
        [items] = lists
        paged = ", ".join([*sent[:2], repr(items), repr(cursor), *sent[2:]])
        return f"Iterator[{forms.of(members[items]['items'])}]", f"self._pages({paged})"
    if lists == list(members):
        [items] = lists
        form = forms.of(members[items])
        return form, f'cast("{form}", self._document({arguments})[{items!r}])'
    form = forms.of(schema)
    if form == "bytes":
        return form, f"self._send({arguments}).content"
    return form, f'cast("{form}", self._document({arguments}))'


def _cursor(name: str, success: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the parameter that requests the next page and the member of a page that holds it, or None."""
    for link in success.get("links", {}).values():
        if link["operationId"] == name:
            [(parameter, place)] = link["parameters"].items()
            return parameter, place.removeprefix("$response.body#/")
    return None


def _about(operation: Mapping[str, Any], parameters: list[_Parameter]) -> str:
    """Return the docstring's paragraphs: summary, description, parameters, and the error if nothing is found."""
    items = [f"- `{each.name}`: {each.about}" for each in parameters if each.about]
    missing = operation["responses"].get("404")
    raised = f"Raises `NotFound`: {missing['description']}" if missing else ""
    body = " ".join(operation["description"].split())
    return "\n\n".join(filter(None, [_sentence(operation["summary"]), body, "\n".join(items), raised]))


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}".removesuffix(".") + "." if text else ""


def _docstring(text: str, indent: int) -> str:
    """Format paragraphs and list items as a docstring, indented by `indent` spaces."""
    width = _WIDTH - indent - len('"""')
    lines = [
        textwrap.fill(line, width, subsequent_indent="  " if line.startswith("- ") else "", break_on_hyphens=False)
        for line in text.splitlines()
    ]
    quoted = '"""' + "\n".join(lines) + ('\n"""' if len(lines) > 1 else '"""')
    return textwrap.indent(quoted, " " * indent).lstrip()


if __name__ == "__main__":
    from tilewise.api.app import create_app

    Path(sys.argv[1]).write_text(client_source(create_app("sqlite://").openapi()))
