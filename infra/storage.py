"""Where everything lies: the Tasks and TaskEvents tables, the bucket, and the key of evidence."""

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from constructs import Construct

from autocoder.ports.tasks import QUEUE_INDEX, STATUS_INDEX
from infra.explained import explain

STRING, NUMBER = dynamodb.AttributeType.STRING, dynamodb.AttributeType.NUMBER


class Storage(Construct):
    """The data of a stack; it outlives the stack. Everything is encrypted at rest."""

    def __init__(self, scope: Construct, id: str, *, retention_days: int) -> None:
        """Results expire with their records."""
        super().__init__(scope, id)
        self.retention = Duration.days(retention_days)
        self.log_retention = log_retention(retention_days)
        self.tasks = self._table("Tasks", dynamodb.Attribute(name="task_id", type=STRING))
        self._index(STATUS_INDEX, "status", ["stage", "iteration", "updated_at", "priority"])
        # Sparse: `queue` holds the priority, and only while a task waits for a slot.
        self._index(QUEUE_INDEX, "queue", ["attempt", "queue_position"])
        self.events = self._table(
            "TaskEvents",
            dynamodb.Attribute(name="task_id", type=STRING),
            dynamodb.Attribute(name="seq", type=NUMBER),
        )
        access_logs = self._bucket("AccessLogs", None)
        explain(access_logs, {"S1": "It is where the access logs go."})
        self.bucket = self._bucket("Bucket", access_logs)
        # Retained, as all here: evidence must be verifiable for as long as somebody has it.
        self.evidence_key = kms.Key(
            self,
            "EvidenceKey",
            description="Autocoder: signs the evidence of results",
            key_spec=kms.KeySpec.ECC_NIST_P256,
            key_usage=kms.KeyUsage.SIGN_VERIFY,
            removal_policy=RemovalPolicy.RETAIN,
        )

    def _table(
        self, id: str, key: dynamodb.Attribute, sort: dynamodb.Attribute | None = None
    ) -> dynamodb.Table:
        return dynamodb.Table(
            self,
            id,
            partition_key=key,
            sort_key=sort,
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            time_to_live_attribute="expires_at",
            removal_policy=RemovalPolicy.RETAIN,
        )

    def _index(self, name: str, key: str, attributes: list[str]) -> None:
        self.tasks.add_global_secondary_index(
            index_name=name,
            partition_key=dynamodb.Attribute(name=key, type=STRING),
            sort_key=dynamodb.Attribute(name="created_at", type=STRING),
            projection_type=dynamodb.ProjectionType.INCLUDE,
            non_key_attributes=attributes,
        )

    def _bucket(self, id: str, access_logs: s3.Bucket | None) -> s3.Bucket:
        return s3.Bucket(
            self,
            id,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            encryption=s3.BucketEncryption.S3_MANAGED,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            removal_policy=RemovalPolicy.RETAIN,
            server_access_logs_bucket=access_logs,
            lifecycle_rules=[
                s3.LifecycleRule(
                    expiration=self.retention,
                    abort_incomplete_multipart_upload_after=Duration.days(1),
                )
            ],
        )


def log_retention(days: int) -> logs.RetentionDays:
    """Logs stay as long as the records, or to the next of the terms that CloudWatch knows."""
    known = logs.RetentionDays
    terms = {1: known.ONE_DAY, 7: known.ONE_WEEK, 14: known.TWO_WEEKS, 30: known.ONE_MONTH}
    terms |= {60: known.TWO_MONTHS, 90: known.THREE_MONTHS, 180: known.SIX_MONTHS}
    terms |= {365: known.ONE_YEAR, 731: known.TWO_YEARS, 1827: known.FIVE_YEARS}
    return next((term for most, term in terms.items() if days <= most), known.TEN_YEARS)
