"""The service's doors to AWS: DynamoDB, S3, EventBridge."""
