"""A workflow document with one of everything that a schema can say, for the tests of the scaffold."""

from __future__ import annotations

from typing import Any

ITEM: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "description": 'A thing\nin the "box"',
    "required": ["sku", "at"],
    "properties": {
        "sku": {"type": "string", "pattern": "^[A-Z]{2}$", "maxLength": 2, "description": "Stock number."},
        "at": {"type": "string", "format": "date-time"},
        "qty": {"type": "integer", "minimum": 1, "maximum": 5, "default": 1},
        "color": {"$ref": "#/schemas/Color", "default": "red"},
        "link": {"type": "string", "format": "uri"},
        "json": {"type": "integer"},
        "my-key": {"type": "string", "pattern": "a(?=b)"},
        "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True, "maxItems": 3},
        "pair": {
            "type": "array",
            "prefixItems": [{"type": "integer"}, {"type": "string"}],
            "minItems": 2,
            "maxItems": 2,
        },
        "weights": {"type": "object", "additionalProperties": {"type": "number", "exclusiveMinimum": 0}},
        "size": {"type": "object", "required": ["w"], "properties": {"w": {"type": "number"}}},
        "when": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}], "default": None},
        "kids": {"type": "array", "items": {"$ref": "#/schemas/Item"}},
        "list": {"type": "array", "items": {"type": "string"}, "default": ["x"]},
        "model_no": {"type": "integer", "default": 3},
        "half": {"enum": [1.5, 2]},
        "nest": {"type": "object", "properties": {"x": {"type": "integer"}}, "default": {"x": 3}},
        "not_x": {"type": "string", "not": {"const": "x"}, "default": "q"},
        "shape": {
            "oneOf": [{"$ref": "#/schemas/Circle"}, {"$ref": "#/schemas/Square"}],
            "discriminator": {"propertyName": "kind"},
        },
        "start": {"type": "string", "format": "time", "default": "10:00:00"},
    },
}

KITCHEN: dict[str, Any] = {
    "stateous": 1,
    "workflow": "kitchen",
    "context": "Order",
    "states": {
        "prepare": {"emits": ["ready", "nothing-new"], "retries": 2},
        "stuck": {"emits": []},
        "both": {"parallel": ["oven"], "join": "all"},
        "class": {"emits": ["ready"]},
        "wait": {},
    },
    "events": {"ready": {"payload": "Item"}, "nothing-new": {}, "a-b": {}, "a_b": {}},
    "transitions": [
        {"from": "wait", "to": "stuck", "on": "a-b"},
        {"from": "wait", "to": "stuck", "on": "timeout"},
        {"from": "wait", "to": "wait", "on": "a-b", "when": "count('a-b') < 2"},
    ],
    "workflows": {
        "oven": {
            "states": {"prepare": {"emits": ["done"]}},
            "events": {"done": {"payload": "Anything"}},
            "transitions": [],
        }
    },
    "schemas": {
        "Anything": {"type": "object"},
        "Color": {"enum": ["red", "blue"], "type": "string"},
        "Item": ITEM,
        "Circle": {
            "type": "object",
            "properties": {"kind": {"const": "circle"}, "r": {"type": "number"}},
            "required": ["kind", "r"],
        },
        "Square": {
            "type": "object",
            "properties": {"kind": {"const": "square"}, "a": {"type": "number"}},
            "required": ["kind", "a"],
        },
        "Order": {
            "type": "object",
            "required": ["item"],
            "properties": {
                "item": {"$ref": "#/schemas/Item"},
                "n": {"type": "integer", "default": 0},
                "who": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "color": {"$ref": "#/schemas/Color"},
            },
        },
    },
}
