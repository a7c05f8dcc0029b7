"""The OpenRPC document (https://spec.open-rpc.org, 1.2.6) of our methods, made from the method table itself."""

import types
from importlib.metadata import version as package_version
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from node import errors
from node.jsonform import TAG_FIELD, struct_hints
from node.rpc_methods import METHODS, Method

DISCOVER: Final = "rpc.discover"
ERRORS: Final = {
    errors.INVALID_REQUEST: "Only over the WebSocket, or one subscription too many.",
    errors.INVALID_PARAMS: "A parameter is missing, unknown or out of its form.",
    errors.INTERNAL_ERROR: "Something that should not happen; the node's log has the details.",
    errors.NOT_READY: "The node's chain does not answer: starting, restarting or catching up.",
    errors.RATE_LIMITED: "Too many calls from this address.",
    errors.MEMPOOL_FULL: "The mempool has no room; send the same transaction again later.",
    errors.UNREADABLE: "The engine answered in a form that this node does not know.",
    errors.FORBIDDEN: "Only for callers on the node's own machine.",
}
OF_EVERY_METHOD: Final = (
    errors.INVALID_PARAMS,
    errors.INTERNAL_ERROR,
    errors.NOT_READY,
    errors.RATE_LIMITED,
    errors.UNREADABLE,
)
_SCALARS: Final[dict[Any, dict[str, Any]]] = {
    bytes: {"type": "string", "pattern": "^(([0-9a-f]{2})*|outer1[0-9a-z]+)$"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    str: {"type": "string"},
    types.NoneType: {"type": "null"},
}

_BYTES_OF_CALLERS: Final = "^((0x)?([0-9a-fA-F]{2})*|outer1[0-9a-z]+)$"
"""Byte strings in parameters: node.jsonform reads more than it writes."""


def describe() -> dict[str, Any]:
    """The whole document, as JSON values."""
    schemas: dict[str, Any] = {}
    methods = [_describe_method(METHODS[name], schemas) for name in sorted(METHODS)]
    return {
        "openrpc": "1.2.6",
        "info": {
            "title": "outerstep node",
            "version": package_version("outerstep"),
            "description": "Byte strings of 20 bytes are outer1… addresses, all others lower-case hex; "
            "in parameters, upper-case hex and a leading 0x are fine too.",
        },
        "methods": methods,
        "components": {"schemas": dict(sorted(schemas.items()))},
    }


def schema_of(wanted: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    """JSON schema of a type that node.jsonform knows; structs go into `schemas` and are referred to."""
    if wanted in _SCALARS:
        return _SCALARS[wanted]
    origin, arguments = get_origin(wanted), get_args(wanted)
    struct = origin if isinstance(origin, type) else wanted
    if isinstance(struct, type) and issubclass(struct, msgspec.Struct):
        return _struct_reference(wanted, struct, schemas)
    if origin is Literal:
        return {"type": "string", "enum": list(arguments)}
    if origin in (types.UnionType, Union):
        return {"anyOf": [schema_of(option, schemas) for option in arguments]}
    if origin is dict:
        return {"type": "object", "additionalProperties": schema_of(arguments[1], schemas)}
    if origin is tuple and arguments[-1] is not Ellipsis:
        items = [schema_of(item, schemas) for item in arguments]
        return {"type": "array", "items": items, "minItems": len(items), "maxItems": len(items)}
    if origin in (tuple, list):
        return {"type": "array", "items": schema_of(arguments[0], schemas)}
    raise TypeError(f"{wanted!r} has no schema")


def _describe_method(method: Method, schemas: dict[str, Any]) -> dict[str, Any]:
    hints = struct_hints(method.params)
    return {
        "name": method.name,
        "summary": method.summary,
        "paramStructure": "either",
        "params": [
            {
                "name": field.name,
                "required": field.required,
                "schema": _with_default(_of_callers(schema_of(hints[field.name], schemas)), field),
            }
            for field in msgspec.structs.fields(method.params)
        ],
        "result": {"name": "result", "schema": schema_of(method.result, schemas)},
        "errors": [{"code": code, "message": ERRORS[code]} for code in (*OF_EVERY_METHOD, *method.own_errors)],
    }


def _of_callers(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema as a parameter has it."""
    if "anyOf" in schema:
        return {"anyOf": [_of_callers(option) for option in schema["anyOf"]]}
    return {**schema, "pattern": _BYTES_OF_CALLERS} if "pattern" in schema else schema


def _with_default(schema: dict[str, Any], field: msgspec.structs.FieldInfo) -> dict[str, Any]:
    return schema if field.required else {**schema, "default": field.default}


def _struct_reference(wanted: Any, struct: type[msgspec.Struct], schemas: dict[str, Any]) -> dict[str, Any]:
    name = "_".join([struct.__name__, *(getattr(a, "__name__", "") for a in get_args(wanted) if not _is_free(a))])
    if name not in schemas:
        schemas[name] = {}
        tag = struct.__struct_config__.tag
        properties = {field: schema_of(hint, schemas) for field, hint in struct_hints(wanted).items()}
        if tag is not None:
            properties = {TAG_FIELD: {"type": "string", "enum": [tag]}, **properties}
        schemas[name] = {
            "type": "object",
            "properties": properties,
            "required": sorted(properties),
            "additionalProperties": False,
        }
    return {"$ref": f"#/components/schemas/{name}"}


def _is_free(argument: Any) -> bool:
    return isinstance(argument, TypeVar)
