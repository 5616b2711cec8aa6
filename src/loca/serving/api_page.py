"""Describe the service as an OpenAPI document, and as a page without a script."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
from jinja2 import Environment

import loca
from loca.serving.problem import ProblemDocument
from loca.serving.replies import SCHEMAS, ProblemReply

_PROBLEMS = {
    "400": "Not JSON, or of other types.",
    "401": "No token, or another one.",
    "404": "An unknown user, item, community or model.",
    "413": "A body that is too large.",
    "422": "What the model refuses, in its words.",
    "429": "Too many requests of this client; Retry-After says when to come back.",
    "503": "Too many requests wait; Retry-After says when to come back.",
}
_OF_A_MODEL = (
    "The answer; model and fingerprint name the version that gave it, notes say what was left out "
    "or answered otherwise than requested."
)
_WITH_NOTES = ("/v1/recommend", "/v1/similar", "/v1/explain", "/v1/communities")
_PARAMETERS = {
    "n": ("integer", "Length of the list."),
    "model": ("string", "The name of the model; the first one by default."),
    "recency": (
        "string",
        "Half-life of the items of a history: 4 (positions), 30d (time), 5steps (units of the "
        "data's times) or none.",
    ),
    "q": ("string", "The beginning of an id, or words of a title."),
    "what": ("string", "users, items or all."),
    "user": ("string", "The id of a user."),
    "item": ("string", "The id of an item."),
    "number": ("integer", "The number of a community."),
    "row": ("integer", "The row of a user, from 0, as the map has it."),
}
_QUERIES = {
    "/v1/recommend/{user}": ("n", "model", "recency"),
    "/v1/similar/{item}": ("n", "model"),
    "/v1/communities": ("model",),
    "/v1/communities/{number}": ("n", "model"),
    "/v1/search": ("q", "what", "n", "model"),
    "/v1/users/{user}": ("model",),
    "/v1/map": ("model",),
    "/v1/map/users/{row}": ("model",),
}
_EXAMPLES = {
    "/v1/recommend": {"titles": ["Iron Fever", "Crimson Forest"], "n": 3},
    "/v1/recommend/batch": {"requests": [{"user": "u0002"}, {"items": ["i003"], "n": 5}]},
    "/v1/explain": {"user": "u0002", "item": "i003"},
}
_OTHER_TYPES = {"/v1/map": "application/octet-stream", "/metrics": "text/plain"}
_PAGE = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(
    """{% macro link(reference) %}
{% set name = reference.split("/")[-1] %}<a href="#{{ name }}">{{ name }}</a>
{%- endmacro %}
{% macro words(schema) %}
{% if "$ref" in schema %}{{ link(schema["$ref"]) }}
{%- elif schema.anyOf %}
{%- for option in schema.anyOf %}{{ words(option) }}{{ "" if loop.last else " or " }}{% endfor %}
{%- elif schema.enum %}{{ schema.enum | join(", ") }}
{%- elif schema.type == "array" %}list of {{ words(schema["items"] or {}) }}
{%- else %}{{ schema.type or "any" }}
{%- endif %}
{% endmacro %}
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{{ api.info.title }}</title><link rel="icon" href="data:,">
<link rel="stylesheet" href="/explorer/explorer.css"></head>
<body><main class="api"><h1>{{ api.info.title }} {{ api.info.version }}</h1>
<p>{{ api.info.description }} <a href="/openapi.json">OpenAPI document</a>,
<a href="/">explorer</a>.</p>
{% for path, methods in api.paths.items() %}{% for method, about in methods.items() %}
<section><h2><code>{{ method | upper }} {{ path }}</code></h2><p>{{ about.summary }}</p>
{% if about.description %}<p>{{ about.description }}</p>{% endif %}
{% if about.parameters %}<table><tr><th>parameter</th><th>in</th><th>type</th><th>meaning</th></tr>
{% for parameter in about.parameters %}
<tr><td><code>{{ parameter.name }}</code></td><td>{{ parameter.in }}</td>
<td>{{ parameter.schema.type }}</td><td>{{ parameter.description }}</td></tr>
{% endfor %}</table>{% endif %}
{% if about.requestBody %}
{% set body = about.requestBody.content["application/json"] %}
<p>Body: {{ link(body.schema["$ref"]) }}</p>
<pre>curl localhost:8000{{ path }} -d '{{ body.example | tojson }}'</pre>{% endif %}
{% set reply = about.responses["200"].content["application/json"] %}
{% if reply and reply.schema %}<p>Reply: {{ link(reply.schema["$ref"]) }}</p>{% endif %}</section>
{% endfor %}{% endfor %}
<h2>Bodies and replies</h2>
{% for name, schema in api.components.schemas.items() %}
<section id="{{ name }}"><h3>{{ name }}</h3><p>{{ schema.description }}</p>
<table><tr><th>field</th><th>type</th><th>default</th><th>meaning</th></tr>
{% for field, about in schema.properties.items() %}
<tr><td><code>{{ field }}</code></td><td>{{ words(about) }}</td>
<td>{% if field in schema.required %}required
{%- elif "default" in about %}{{ about.default | tojson }}
{%- endif %}</td>
<td>{{ about.description }}</td></tr>
{% endfor %}</table></section>{% endfor %}
</main></body></html>
"""
)


def openapi_document(
    endpoints: Iterable[tuple[str, str, Callable[..., Any]]],
    bodies: Mapping[str, type],
    replies: Mapping[str, type],
) -> dict[str, Any]:
    """Describe routes (method, path, function), with the types of their bodies and replies by path.

    The first line of a function's docstring is the summary, the rest the description.
    """
    _, schemas = msgspec.json.schema_components(
        [*bodies.values(), *replies.values(), ProblemReply],
        ref_template=SCHEMAS + "{name}",
    )
    paths: dict[str, Any] = {}
    for method, template, endpoint in endpoints:
        path = template.replace(":path", "")
        summary, _, description = (inspect.getdoc(endpoint) or "").partition("\n")
        about: dict[str, Any] = {
            "summary": summary,
            "operationId": endpoint.__name__,
            "parameters": _parameters(path),
            "responses": _responses(path, replies.get(path)),
        }
        if description:
            about["description"] = " ".join(description.split())
        if path in bodies and method == "POST":
            body = {"schema": _reference(bodies[path]), "example": _EXAMPLES[path]}
            about["requestBody"] = {"required": True, "content": {"application/json": body}}
        paths.setdefault(path, {})[method.lower()] = about
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


def _parameters(path: str) -> list[dict[str, Any]]:
    """Return the parameters of a path, and of the query behind it."""
    inside = [(name, "path") for name in re.findall(r"{(\w+)}", path)]
    behind = [(name, "query") for name in _QUERIES.get(path, ())]
    return [
        {
            "name": name,
            "in": location,
            "required": location == "path",
            "schema": {"type": _PARAMETERS[name][0]},
            "description": _PARAMETERS[name][1],
        }
        for name, location in [*inside, *behind]
    ]


def _responses(path: str, reply: type | None) -> dict[str, Any]:
    """Return what a path may reply, by status."""
    media_type = _OTHER_TYPES.get(path, "application/json")
    schema: dict[str, Any] = {} if reply is None else {"schema": _reference(reply)}
    meaning = _OF_A_MODEL if path.startswith(_WITH_NOTES) else "The answer."
    responses: dict[str, Any] = {"200": {"description": meaning, "content": {media_type: schema}}}
    problem = {"application/problem+json": {"schema": _reference(ProblemDocument)}}
    for status, reason in _PROBLEMS.items():
        responses[status] = {"description": reason, "content": problem}
    return responses


def _reference(kind: type) -> dict[str, str]:
    return {"$ref": SCHEMAS + kind.__name__}


def render_page(document: Mapping[str, Any]) -> str:
    """Return the document as a page."""
    return _PAGE.render(api=document)
