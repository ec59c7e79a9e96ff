"""Puts the stack into an app, whose context is cdk.json's also without the CDK CLI."""

import json
import os
import sys

from aws_cdk import App

from infra.settings import ROOT, Settings
from infra.stack import AutocoderStack


def synthesize() -> None:
    """Write the cloud assembly to CDK_OUTDIR, or to cdk.out."""
    app = App(
        context=json.loads((ROOT / "cdk.json").read_text())["context"],
        outdir=os.environ.get("CDK_OUTDIR", "cdk.out"),  # without it, CDK writes to a temp folder
    )
    settings = Settings.model_validate(app.node.get_context("autocoder"))
    AutocoderStack(app, settings.stack_name, settings=settings)
    sys.stderr.write(f"synthesized to {app.synth().directory}\n")
