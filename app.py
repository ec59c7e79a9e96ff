"""The CDK app: `python app.py` synthesizes, `cdk deploy` deploys the same."""

from infra.app import synthesize

synthesize()
