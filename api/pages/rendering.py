"""Rendering of templates to responses."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from starlette.responses import HTMLResponse, Response

from tilewise.db.records import shape_text

__all__ = ["missing", "page", "refused"]

_templates = Environment(
    loader=PackageLoader("tilewise.api.pages"),
    autoescape=select_autoescape(),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


_templates.filters["shape"] = shape_text


def page(template: str, *, status: int = 200, **shown: object) -> Response:
    return HTMLResponse(_templates.get_template(template).render(shown), status_code=status)


def missing(text: str) -> Response:
    """Return a 404 page with this sentence."""
    return page("fault.html", here="", title="Not found", text=text, request_id="", status=404)


def refused(text: str) -> Response:
    """Return a 400 page with this sentence."""
    return page("fault.html", here="", title="Not understood", text=text, request_id="", status=400)
