"""How a task ended: by the result in S3 or, where there is none, by its record."""

import json

from autocoder.cli.live import Say
from autocoder.cli.service import Service
from autocoder.record import TaskRecord
from autocoder.summary import as_lines, summarize


def show_end(service: Service, record: TaskRecord, say: Say) -> None:
    """Say what became of it, in a few lines."""
    if where := record.get("result"):
        say("S3", f"s3://{where['bucket']}/{where['prefix']}")
        s3, key = service.client("s3"), f"{where['prefix']}result.json"
        try:
            body = s3.get_object(Bucket=where["bucket"], Key=key)["Body"].read()
        except s3.exceptions.NoSuchKey:
            say("result", f"{record['status']}; what it made has expired")
            return
        for subject, line in as_lines(summarize(json.loads(body))):
            say(subject, line)
        return
    if failure := record.get("failure"):
        say("failure", f"{failure['code']}: {failure['message']}")
        say("", failure["hint"])
    if number := record.get("iteration"):
        say("result", f"{record['status']} in iteration {number}")
