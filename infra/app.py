"""Puts the stack into an app, whose context is cdk.json's also without the CDK CLI."""

import json
import os
import sys

from aws_cdk import App, Validations
from cdk_nag import AwsSolutionsChecks

from infra.layers import PYTHON, compiler
from infra.settings import ROOT, Settings
from infra.stack import AutocoderStack


def synthesize() -> None:
    """Write the cloud assembly to CDK_OUTDIR, or to cdk.out.

    `-c stage=NAME` is another stage than cdk.json's; a finding of cdk-nag that is not explained
    fails it.
    """
    app = App(
        context=json.loads((ROOT / "cdk.json").read_text())["context"],
        outdir=os.environ.get("CDK_OUTDIR", "cdk.out"),  # without it, CDK writes to a temp folder
    )
    chosen = dict(app.node.get_context("autocoder"))
    if stage := app.node.try_get_context("stage"):
        chosen["stage"] = stage
    settings = Settings.model_validate(chosen)
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    AutocoderStack(app, settings.stack_name, settings=settings)
    sys.stderr.write(f"synthesized to {app.synth().directory}\n")
    if not compiler():
        note = f"no python{PYTHON} on PATH: the layers hold no bytecode, cold starts are slower"
        sys.stderr.write(f"note: {note}\n")
