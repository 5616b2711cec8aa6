"""The OpenAPI document of the service, from its routes and bodies, and a page that shows it without a script."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from jinja2 import Environment

import loca

_REPLIES = {
    "200": "The answer; `model` and `fingerprint` name the version that gave it.",
    "400": "Not JSON, or of other types.",
    "401": "No token, or another one.",
    "404": "An unknown user, item, community or model.",
    "413": "A body that is too large.",
    "422": "What the model refuses, in its words.",
    "429": "Too many requests of this client; Retry-After says when.",
    "503": "Too many requests wait; Retry-After says when.",
}
_PARAMETERS = {
    "n": ("integer", "Length of the list."),
    "model": ("string", "The name of the model; the first one by default."),
    "recency": (
        "string",
        "Half-life of the items of a history: 4 (positions), 30d (time) or none.",
    ),
    "q": ("string", "The beginning of an id, or words of a title."),
    "what": ("string", "users, items or all."),
    "user": ("string", "The id of a user."),
    "item": ("string", "The id of an item."),
    "number": ("integer", "The number of a community."),
    "row": ("integer", "The row of a user, from 0."),
}
_QUERIES = {
    "/v1/recommend/{user}": ("n", "model", "recency"),
    "/v1/similar/{item}": ("n", "model"),
    "/v1/communities": ("model",),
    "/v1/communities/{number}": ("n", "model"),
    "/v1/map": ("model",),
    "/v1/search": ("q", "what", "n", "model"),
    "/v1/users/{row}": ("model",),
}
_PAGE = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(
    """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{{ api.info.title }}</title><link rel="stylesheet" href="/explorer/explorer.css"></head>
<body><main class="api"><h1>{{ api.info.title }} {{ api.info.version }}</h1>
<p>{{ api.info.description }} <a href="/openapi.json">OpenAPI document</a>, <a href="/">explorer</a>.</p>
{% for path, methods in api.paths.items() %}{% for method, about in methods.items() %}
<section><h2><code>{{ method | upper }} {{ path }}</code></h2><p>{{ about.summary }}</p>
{% if about.parameters %}<table><tr><th>parameter</th><th>in</th><th>type</th><th>meaning</th></tr>
{% for one in about.parameters %}
<tr><td><code>{{ one.name }}</code></td><td>{{ one.in }}</td><td>{{ one.schema.type }}</td>
<td>{{ one.description }}</td></tr>
{% endfor %}</table>{% endif %}
{% if about.requestBody %}
{% set name = about.requestBody.content["application/json"].schema["$ref"].split("/")[-1] %}
<p>Body: <a href="#{{ name }}">{{ name }}</a></p>{% endif %}</section>
{% endfor %}{% endfor %}
<h2>Bodies</h2>
{% for name, schema in api.components.schemas.items() %}
<section id="{{ name }}"><h3>{{ name }}</h3><p>{{ schema.description }}</p>
<pre>{{ schema | tojson(indent=2) }}</pre></section>{% endfor %}
</main></body></html>
"""
)


def openapi_document(
    endpoints: Iterable[tuple[str, str, Callable[..., Any]]], bodies: Mapping[str, type]
) -> dict[str, Any]:
    """The document of routes (method, path, function, whose docstring is the summary) and of the bodies of paths."""
    _, schemas = msgspec.json.schema_components(
        bodies.values(), ref_template="#/components/schemas/{name}"
    )
    paths: dict[str, Any] = {}
    for method, template, endpoint in endpoints:
        path = re.sub(r":path", "", template)
        inside = [(name, "path") for name in re.findall(r"{(\w+)}", path)]
        parameters = []
        for name, place in [*inside, *((name, "query") for name in _QUERIES.get(path, ()))]:
            kind, text = _PARAMETERS[name]
            about = {
                "name": name,
                "in": place,
                "required": place == "path",
                "schema": {"type": kind},
            }
            parameters.append({**about, "description": text})
        kind = "application/octet-stream" if path == "/v1/map" else "application/json"
        replies: dict[str, Any] = {code: {"description": text} for code, text in _REPLIES.items()}
        replies["200"]["content"] = {kind: {}}
        found: dict[str, Any] = {
            "summary": (inspect.getdoc(endpoint) or "").split("\n")[0],
            "operationId": endpoint.__name__,
            "parameters": parameters,
            "responses": replies,
        }
        if method == "POST":
            reference = {"$ref": f"#/components/schemas/{bodies[path].__name__}"}
            found["requestBody"] = {
                "required": True,
                "content": {"application/json": {"schema": reference}},
            }
        paths.setdefault(path, {})[method.lower()] = found
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "LOCA",
            "version": loca.__version__,
            "description": "Lists, explanations and communities.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def render_page(document: Mapping[str, Any]) -> str:
    """The document as a page."""
    return _PAGE.render(api=document)
