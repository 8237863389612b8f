"""The Python client of the service, made from its OpenAPI document.

`python -m tilewise.api.generator src/tilewise/client.py` writes that module; a test compares it with what would be
written.
The document's names are the client's: an operation's id is a method, a schema is a type. Of what is general to clients:
a body's members are parameters, as those of the path and the query are; an answer with nothing but a list is that list;
an operation that links to itself is one over pages; and what the document marks with `x-file` is handed over as bytes.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

__all__ = ["client_source"]

_WIDTH = 120
_PLAIN = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}

_Schema = Mapping[str, Any]


def client_source(document: Mapping[str, Any]) -> str:
    """The module's text, which `ruff format` has yet to lay out. Raises `ValueError` for what it has no form for."""
    forms = _Forms(document["components"]["schemas"])
    operations = [
        _operation(forms, path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    environment = Environment(
        loader=PackageLoader("tilewise.api", "."), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"docstring": _docstring, "sentence": _sentence}
    named = forms.named()  # once all operations have said what they need
    return environment.get_template("client.jinja").render(named=named, operations=operations)


class _Forms:
    """The document's schemas as Python's types."""

    def __init__(self, schemas: Mapping[str, _Schema]) -> None:
        self._schemas = schemas
        self._used: dict[str, _Schema] = {}

    def of(self, schema: _Schema) -> str:
        """Containers are those that cannot be changed: what is given may then be any, and answers are the reader's."""
        if "$ref" in schema:
            return self._name(schema["$ref"])
        if "anyOf" in schema:
            return " | ".join(dict.fromkeys(map(self.of, schema["anyOf"])))
        if choices := schema.get("enum") or [schema[key] for key in ("const",) if key in schema]:
            return f"Literal[{', '.join(map(repr, choices))}]"
        if schema.get("type") == "array":
            return f"Sequence[{self.of(schema['items'])}]"
        if schema.get("type") == "object":
            values = schema["additionalProperties"]
            return f"Mapping[str, {'Any' if values is True else self.of(values)}]"
        if schema.get("type") not in _PLAIN:
            raise ValueError(f"no type of Python is known for {dict(schema)}")
        return _PLAIN[schema["type"]]

    def resolved(self, schema: _Schema) -> _Schema:
        return self._schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema

    def named(self) -> list[dict[str, Any]]:
        """What is to be declared: other names of plain types, then types with fields."""
        declared: dict[str, dict[str, Any]] = {}
        while left := self._used.keys() - declared.keys():  # fields need further ones
            declared |= {name: self._declared(name, self._used[name]) for name in left}
        return sorted(declared.values(), key=lambda each: ("fields" in each, each["name"]))

    def _name(self, reference: str) -> str:
        name = reference.rpartition("/")[2]
        if _is_file(self._schemas[name]):
            return "bytes"
        self._used[name] = self._schemas[name]
        return name

    def _declared(self, name: str, schema: _Schema) -> dict[str, Any]:
        head = {"name": name, "about": schema.get("description", "")}
        if "properties" not in schema:
            return {**head, "form": self.of(schema)}
        required = schema.get("required", ())
        fields = [
            {
                "name": _identifier(field),
                "form": self.of(each) if field in required else f"NotRequired[{self.of(each)}]",
                "about": each.get("description", ""),
            }
            for field, each in schema["properties"].items()
        ]
        return {**head, "fields": fields}


@dataclass(frozen=True, slots=True)
class _Parameter:
    """`place` is where it is sent: path, query or body; `spread` is one whose members are parameters of the query."""

    name: str
    form: str
    place: str
    about: str
    default: str | None = None
    spread: bool = False

    @classmethod
    def of(cls, forms: _Forms, name: str, schema: _Schema, place: str, required: bool, about: str) -> _Parameter:
        spread = place == "query" and forms.resolved(schema).get("type") == "object"
        form, default = forms.of(schema), None
        if not required:
            default = repr(schema.get("default"))
            if default == "None" and "None" not in form.split(" | "):
                form += " | None"
        return cls(_identifier(name), form, place, about, default, spread)


def _operation(forms: _Forms, path: str, method: str, operation: Mapping[str, Any]) -> dict[str, Any]:
    """What the template has to know of an operation."""
    success = next(response for status, response in operation["responses"].items() if status.startswith("2"))
    [(media, content)] = success["content"].items()
    cursor = _cursor(operation["operationId"], success)
    parameters = [each for each in _parameters(forms, operation) if not cursor or each.name != cursor[0]]
    sent = [repr(method.upper()), _path(path), *_sent(parameters)]
    form, call = _answer(forms, media, content, sent, cursor)
    return {
        "name": _identifier(operation["operationId"]),
        "required": [each for each in parameters if each.default is None],
        "optional": [each for each in parameters if each.default is not None],
        "returns": form,
        "call": call,
        "about": _about(operation, parameters),
    }


def _parameters(forms: _Forms, operation: Mapping[str, Any]) -> Iterator[_Parameter]:
    for each in operation.get("parameters", ()):
        about = each.get("description", "")
        yield _Parameter.of(forms, each["name"], each["schema"], each["in"], each["required"], about)
    if "requestBody" not in operation:
        return
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    body = forms.resolved(schema)
    if _is_file(body):
        yield _Parameter("data", "bytes", "file", "the file's content")
        return
    for name, each in body["properties"].items():
        yield _Parameter.of(forms, name, each, "body", name in body["required"], each.get("description", ""))


def _sent(parameters: list[_Parameter]) -> Iterator[str]:
    """Arguments of a call."""
    if any(each.place == "file" for each in parameters):
        yield "body=data"
    for place, argument in (("query", "params"), ("body", "body")):
        there = [each for each in parameters if each.place == place]
        members = (f"**{each.name}" if each.spread else f"{each.name!r}: {each.name}" for each in there)
        if there:
            yield f"{argument}={{{', '.join(members)}}}"


def _answer(
    forms: _Forms, media: str, content: _Schema, sent: list[str], cursor: tuple[str, str] | None
) -> tuple[str, str]:
    """Type and expression."""
    arguments = ", ".join(sent)
    if media == "text/event-stream":
        data = content["itemSchema"]["properties"]["data"]["contentSchema"]
        return f"Iterator[{forms.of(data)}]", f"self._events({arguments})"
    if media != "application/json":
        return "str", f"self._send({arguments}).text"
    members = forms.resolved(content["schema"])["properties"]
    lists = [name for name, member in members.items() if member.get("type") == "array"]
    if cursor:
        [items] = lists
        one = forms.of(members[items]["items"])
        return f"Iterator[{one}]", f"self._pages({', '.join([*sent[:2], repr(items), repr(cursor), *sent[2:]])})"
    if lists == list(members):
        [items] = lists
        form = forms.of(members[items])
        return form, f'cast("{form}", self._document({arguments})[{items!r}])'
    form = forms.of(content["schema"])
    if form == "bytes":
        return form, f"self._send({arguments}).content"
    return form, f'cast("{form}", self._document({arguments}))'


def _cursor(name: str, success: Mapping[str, Any]) -> tuple[str, str] | None:
    """The parameter that leads to the next page, and the member of a page that it is taken from."""
    for link in success.get("links", {}).values():
        if link["operationId"] == name:
            [(parameter, place)] = link["parameters"].items()
            return parameter, place.removeprefix("$response.body#/")
    return None


def _is_file(schema: _Schema) -> bool:
    return bool(schema.get("x-file"))


def _path(path: str) -> str:
    quoted = re.sub(r"{(\w+)}", r"{part(\1)}", path)
    return repr(path) if quoted == path else f"f{quoted!r}"


def _about(operation: Mapping[str, Any], parameters: list[_Parameter]) -> str:
    """Paragraphs: what it does, what it is given, and when there is nothing."""
    told = [f"- `{each.name}`: {each.about}" for each in parameters if each.about]
    missing = operation["responses"].get("404")
    raised = f"Raises `NotFound`: {missing['description']}" if missing else ""
    body = " ".join(operation["description"].split())
    return "\n\n".join(filter(None, [_sentence(operation["summary"]), body, "\n".join(told), raised]))


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}".removesuffix(".") + "." if text else ""


def _docstring(text: str, indent: int) -> str:
    """Paragraphs and list items as a docstring that stands so far in."""
    width = _WIDTH - indent - len('"""')
    lines = [
        textwrap.fill(line, width, subsequent_indent="  " if line.startswith("- ") else "", break_on_hyphens=False)
        for line in text.splitlines()
    ]
    quoted = '"""' + "\n".join(lines) + ('\n"""' if len(lines) > 1 else '"""')
    return textwrap.indent(quoted, " " * indent).lstrip()


def _identifier(name: str) -> str:
    if not name.isidentifier():
        raise ValueError(f"{name!r} is no name in Python")
    return name


if __name__ == "__main__":
    from tilewise.api.app import create_app

    Path(sys.argv[1]).write_text(client_source(create_app("sqlite://").openapi()))
