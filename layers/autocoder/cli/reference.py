"""`python -m autocoder.cli.reference`: writes docs/commands.md and messages.md."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from pydantic import TypeAdapter

from autocoder.cli.app import app
from autocoder.message import ControlMessage, TaskMessage
from autocoder.record import TaskRecord, TaskRow

COLUMNS = 96

COMMANDS = """\
# Commands

Made by `make reference` from the code; do not edit. What `--help` prints, of every command.

Exit codes: 0 it succeeded; 1 the task or a check did not; 2 the command or the machine is at fault,
with a sentence that says what to do; 130 after Ctrl-C.
"""

MESSAGES = """\
# Messages and records

Made by `make reference` from [message.py](../layers/autocoder/message.py) and
[record.py](../layers/autocoder/record.py); do not edit. Both are contracts: an unknown field of a
message is rejected by its name, and `--json` prints a record's fields as they are named here.
"""

CONTROL = """\
A cancel ends a waiting task at once and a running one at its next heartbeat; what was there by then
is kept. One that comes while the result is extracted comes too late: the task is decided. Send it
when the task is in the table: SQS may deliver two messages in another order than they were sent,
and a cancel that overtakes its task is rejected (`task_unknown`).

A retry makes a further attempt of a task that FAILED or was CANCELLED, from its last checkpoint.
For a task that waits, runs or has succeeded it is rejected (`not_retryable`). One message makes one
attempt, however often SQS delivers it.
"""

RECORD = """\
The Tasks table has one item a task, with the key `task_id`. Writes are conditional on attempt and
status: a step that was overtaken can change nothing. Fields without ✓ are there once they are
known.
"""

Schema = dict[str, Any]


def commands() -> str:
    """Write the page of commands."""
    return "\n".join([COMMANDS, *helps(typer.main.get_command(app), "autocoder", None)])


def helps(command: Any, name: str, parent: Any) -> Iterator[str]:
    """What a command says of itself, then its own commands, in the order of the code."""
    settings = {**command.context_settings, "terminal_width": COLUMNS}
    found = command.context_class(command, info_name=name, parent=parent, **settings)
    yield f"## `{found.command_path}`\n\n```text\n{command.get_help(found).rstrip()}\n```\n"
    for inner in getattr(command, "commands", {}):
        yield from helps(command.commands[inner], inner, found)


def messages() -> str:
    """Write the page of messages and records."""
    record, row = (TypeAdapter(kind).json_schema() for kind in (TaskRecord, TaskRow))
    record["properties"] |= row["properties"]  # pydantic reads a class's own texts alone
    return "\n".join(
        [
            MESSAGES,
            *tables(TypeAdapter(TaskMessage).json_schema(), "The task message"),
            *tables(TypeAdapter(ControlMessage).json_schema(), "Control messages", CONTROL),
            *tables(record, "The record", RECORD),
        ]
    )


def tables(schema: Schema, title: str, more: str = "") -> Iterator[str]:
    """A table of the fields, then one for each part that has fields of its own."""
    yield f"## {title}\n\n{schema['description']}\n"
    if more:
        yield more
    inner = dict(parts(schema))
    for name, field in schema["properties"].items():
        if "description" not in field:  # pydantic leaves out what would only repeat the part's
            field["description"] = inner[name]["description"]
    yield table(schema)
    for name, part in inner.items():
        yield f"### `{name}`\n\n{part['description']}\n"
        yield table(part)


def parts(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """The fields that have fields of their own, with what is said of those."""
    definitions = schema.get("$defs", {})
    for name, field in schema["properties"].items():
        inner = field.get("additionalProperties")
        several = isinstance(inner, dict) and "$ref" in inner
        for kind in [inner] if several else [field, *field.get("anyOf", [])]:
            if "$ref" in kind:
                shown = f"{name}.NAME" if several else name
                yield shown, definitions[kind["$ref"].rpartition("/")[2]]


def table(schema: Schema) -> str:
    """A row a field."""
    required = schema.get("required", [])
    rows = [
        f"| `{name}` | {'✓' if name in required else ''} | {kind(field)} | {default(field)} | "
        f"{' '.join(field['description'].split())} |"
        for name, field in schema["properties"].items()
    ]
    heads = "| field | required | type | default | meaning |\n|---|---|---|---|---|"
    return "\n".join([heads, *rows, ""])


def kind(field: Schema) -> str:
    """A field's type and bounds, for people."""
    if "anyOf" in field:  # a value, or none
        return " or ".join(kind(one) for one in field["anyOf"] if one.get("type") != "null")
    if "enum" in field or "const" in field:
        return ", ".join(f"`{value}`" for value in field.get("enum", [field.get("const")]))
    shown = {"string": "text", "boolean": "true or false"}.get(field.get("type", ""), "")
    match field.get("type"):
        case "array":
            shown = f"[{kind(field['items'])}]"
        case "object" | None:
            shown = "{…}"
        case "integer" | "number":
            whole = "whole number" if field["type"] == "integer" else "number"
            low, high = field.get("minimum"), field.get("maximum")
            shown = whole if low is None else f"{whole}, {low} to {high}"
    return shown + bounds(field)


def bounds(field: Schema) -> str:
    """How long it may be, and what it must look like."""
    most = field.get("maxLength") or field.get("maxItems") or field.get("maxProperties")
    said = f", at most {most:,}" if most else ""
    pattern = str(field.get("pattern", "")).replace("|", "\\|")
    return said + (f", `{pattern}`" if pattern else "")


def default(field: Schema) -> str:
    """What is taken where the field is not given."""
    value = field.get("default")
    if value is None or value in ({}, []) or isinstance(value, dict):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


PAGES = {"commands.md": commands, "messages.md": messages}

if __name__ == "__main__":
    for page, write in PAGES.items():
        Path("docs", page).write_text(write())
