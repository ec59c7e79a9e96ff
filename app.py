"""The CDK app: `python app.py` synthesizes, `cdk deploy` deploys the same."""

from aws_cdk import App

from infra.settings import Settings
from infra.stack import AutocoderStack

app = App()
settings = Settings.from_context(app)
AutocoderStack(app, settings.stack_name, settings=settings)
app.synth()
