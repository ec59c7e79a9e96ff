"""SQS event source mappings: queues polled into functions, as Lambda's own pollers do it."""

import base64
import json
import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from autocoder.local.aws.runtime_api import Outcome

log = logging.getLogger(__name__)

LONG_POLL_SECONDS = 20
DEFAULT_CONCURRENCY = 16
"""Without MaximumConcurrency AWS goes up to 1,250; a laptop has fewer cores."""
POLL_SIZE = 10
"""SQS gives at most ten messages at once; larger batches are gathered in the batching window."""


class QueuePoller:
    """Feeds one queue to one function, batch by batch."""

    def __init__(self, mapping: Any, queues: Any, invoke: Callable[[str, bytes], Outcome]) -> None:
        self._mapping = mapping
        self._queues = queues
        self._invoke = invoke
        self._queue = mapping.event_source_arn.rsplit(":", 1)[-1]
        limit = (mapping.scaling_config or {}).get("MaximumConcurrency", DEFAULT_CONCURRENCY)
        self._capacity = threading.Semaphore(int(limit))

    def start(self) -> None:
        if self._mapping.filter_criteria:
            log.warning("%s: filter criteria are not applied locally", self._queue)
        threading.Thread(target=self._run, name=f"poll-{self._queue}", daemon=True).start()

    def _run(self) -> None:
        try:
            while self._queue in self._queues.queues:
                if not self._mapping.enabled:
                    time.sleep(1)
                    continue
                # Capacity first: a message that is received waits for nobody.
                self._capacity.acquire()
                batch = self._receive_batch()
                if batch:
                    threading.Thread(target=self._process, args=(batch,), daemon=True).start()
                else:
                    self._capacity.release()
        except Exception:
            log.exception("the event source %s has stopped", self._queue)

    def _receive_batch(self) -> list[Any]:
        batch = self._receive(min(self._mapping.batch_size, POLL_SIZE), LONG_POLL_SECONDS)
        window_ends = time.monotonic() + int(self._mapping.max_batch_window or 0)
        while batch and len(batch) < self._mapping.batch_size:
            remaining = window_ends - time.monotonic()
            if remaining <= 0:
                break
            wanted = min(self._mapping.batch_size - len(batch), POLL_SIZE)
            batch += self._receive(wanted, remaining)
        return batch

    def _receive(self, count: int, wait: float) -> list[Any]:
        visibility = self._queues.get_queue(self._queue).visibility_timeout
        received: list[Any] = self._queues.receive_message(
            self._queue, count, wait, visibility, ["All"]
        )
        return received

    def _process(self, batch: list[Any]) -> None:
        try:
            records = [_record(message, self._mapping) for message in batch]
            event = json.dumps({"Records": records}).encode()
            outcome = self._invoke(self._mapping.function_arn, event)
            failed = self._failed(outcome, [message.id for message in batch])
            for message in batch:
                if message.id not in failed:
                    self._queues.delete_message(self._queue, message.receipt_handle)
        except Exception:
            log.exception("a batch from %s could not be processed", self._queue)
        finally:
            self._capacity.release()

    def _failed(self, outcome: Outcome, ids: list[str]) -> set[str]:
        """The messages that stay, to become visible again after the visibility time-out."""
        if outcome.failed:
            log.warning(
                "%d message(s) of %s failed: %s", len(ids), self._queue, outcome.payload.decode()
            )
            return set(ids)
        if "ReportBatchItemFailures" not in (self._mapping.function_response_types or []):
            return set()
        failed = _reported(outcome.payload)
        if failed is None or not failed <= set(ids):
            log.warning("%s: the reported batch item failures are not valid", self._queue)
            return set(ids)
        return failed


def _reported(payload: bytes) -> set[str] | None:
    """The identifiers in `batchItemFailures`; None when the answer is malformed."""
    answer = json.loads(payload)
    if not answer:
        return set()
    try:
        failures: Iterable[dict[str, str]] = answer.get("batchItemFailures") or []
        return {failure["itemIdentifier"] for failure in failures}
    except (AttributeError, KeyError, TypeError):
        return None


def _record(message: Any, mapping: Any) -> dict[str, Any]:
    attributes = {
        "ApproximateReceiveCount": str(message.approximate_receive_count),
        "SentTimestamp": str(message.sent_timestamp),
        "SenderId": message.sender_id,
        "ApproximateFirstReceiveTimestamp": str(message.approximate_first_receive_timestamp),
    }
    optional = {
        "SequenceNumber": message.sequence_number,
        "MessageGroupId": message.group_id,
        "MessageDeduplicationId": message.deduplication_id,
    }
    return {
        "messageId": message.id,
        "receiptHandle": message.receipt_handle,
        "body": message.body,
        "attributes": attributes | {k: v for k, v in optional.items() if v is not None},
        "messageAttributes": {
            name: _attribute(value) for name, value in message.message_attributes.items()
        },
        "md5OfBody": message.body_md5,
        "eventSource": "aws:sqs",
        "eventSourceARN": mapping.event_source_arn,
        "awsRegion": mapping.region,
    }


def _attribute(value: dict[str, Any]) -> dict[str, Any]:
    record: dict[str, Any] = {"dataType": value["DataType"]}
    if value.get("StringValue") is not None:
        record["stringValue"] = value["StringValue"]
    if value.get("BinaryValue") is not None:
        binary = value["BinaryValue"]
        record["binaryValue"] = (
            base64.b64encode(binary).decode() if isinstance(binary, bytes) else binary
        )
    return record | {"stringListValues": [], "binaryListValues": []}
