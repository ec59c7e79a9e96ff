"""What the fault tests share."""

from typing import Any

from autocoder.services import Services


def dead_letters(services: Services) -> list[dict[str, Any]]:
    """Take all that is in the dead-letter queue."""
    sqs, queue = services.sqs, services.settings.dead_letters_url
    letters: list[dict[str, Any]] = []
    while True:
        answer = sqs.receive_message(
            QueueUrl=queue, MaxNumberOfMessages=10, MessageAttributeNames=["All"]
        )
        if not answer.get("Messages"):
            return letters
        for letter in answer["Messages"]:
            sqs.delete_message(QueueUrl=queue, ReceiptHandle=letter["ReceiptHandle"])
            letters.append(dict(letter))
