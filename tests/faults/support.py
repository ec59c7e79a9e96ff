"""What the fault tests share."""

from typing import Any

from tests.world import World


def dead_letters(world: World) -> list[dict[str, Any]]:
    """Take all that is in the dead-letter queue."""
    sqs, queue = world.client("sqs"), world.names["TaskDeadLetters"]
    letters: list[dict[str, Any]] = []
    while True:
        answer = sqs.receive_message(
            QueueUrl=queue, MaxNumberOfMessages=10, MessageAttributeNames=["All"]
        )
        if not answer.get("Messages"):
            return letters
        for letter in answer["Messages"]:
            sqs.delete_message(QueueUrl=queue, ReceiptHandle=letter["ReceiptHandle"])
            letters.append(letter)
