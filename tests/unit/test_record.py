"""The record's types: what documents them, and what `--json` prints of a record."""

from typing import Any

from pydantic import TypeAdapter

from autocoder.record import TaskRecord, TaskRow, stable


def described(kind: Any) -> dict[str, str]:
    """Every field of a class, and of the parts that it names, with its text."""
    schema = TypeAdapter(kind).json_schema()
    parts = {"": schema, **schema.get("$defs", {})}
    found = {}
    for part, content in parts.items():
        for name, field in content["properties"].items():
            of_its_part = parts.get(field.get("$ref", "-").rpartition("/")[2], {})
            text = field.get("description") or of_its_part.get("description")
            if text:  # pydantic finds those of inherited fields with the class that has them
                found[f"{part}.{name}"] = text
    return found


def test_every_field_says_what_it_is() -> None:
    texts = {**described(TaskRecord), **described(TaskRow)}
    schema = TypeAdapter(TaskRecord).json_schema()
    parts = {"": schema, **schema["$defs"]}
    fields = {f"{part}.{name}" for part, one in parts.items() for name in one["properties"]}
    assert len(fields) > 50
    assert fields - set(texts) == set()


def test_only_what_is_documented_is_printed_in_its_order() -> None:
    record = {"iteration": 0, "attempt": 1, "secret_thing": 1, "status": "QUEUED", "task_id": "a"}
    assert list(stable(record)) == ["task_id", "status", "iteration", "attempt"]
