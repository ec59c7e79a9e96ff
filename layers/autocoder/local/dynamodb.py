"""The local cloud's tables, asked in DynamoDB's own words.

For `status` and `list`, importing an SDK would take several times as long as the rest. A call has
the form that a botocore client's has, `client.get_item(TableName=…, Key=…)`: for DynamoDB that is
the wire's own.
"""

import http.client
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from autocoder.local.state import REGION, LocalCloudError

ANSWERS_WITHIN_S = 30
# The local cloud takes the region from it, and checks no signature.
UNSIGNED = (
    f"AWS4-HMAC-SHA256 Credential=local/20200101/{REGION}/dynamodb/aws4_request, "
    "SignedHeaders=host, Signature=none"
)


class DynamoDB:
    """A client of the local cloud's DynamoDB."""

    def __init__(self, endpoint: str) -> None:
        """Nothing is asked yet."""
        self.endpoint = endpoint

    def __getattr__(self, name: str) -> Callable[..., dict[str, Any]]:
        """Any operation, by its name: `get_item` is GetItem."""
        operation = "".join(part.capitalize() for part in name.split("_"))
        return lambda **asked: self.call(operation, asked)

    def call(self, operation: str, asked: dict[str, Any]) -> dict[str, Any]:
        """Ask, and give the answer; what it refuses is an error in a sentence."""
        headers = {
            "Authorization": UNSIGNED,
            "Content-Type": "application/x-amz-json-1.0",
            "X-Amz-Target": f"DynamoDB_20120810.{operation}",
        }
        place = urlsplit(self.endpoint)
        connection = http.client.HTTPConnection(
            str(place.hostname), place.port, timeout=ANSWERS_WITHIN_S
        )
        try:
            connection.request("POST", "/", json.dumps(asked), headers)
            answer = connection.getresponse()
            status, body = answer.status, answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise LocalCloudError(
                f"the local cloud at {self.endpoint} does not answer: {error}. "
                "`autocoder local status` shows whether it is there."
            ) from None
        finally:
            connection.close()
        if status != 200:
            said = body.decode(errors="replace")[:500]
            raise LocalCloudError(f"the local cloud refused {operation}: {said}")
        return dict(json.loads(body))
