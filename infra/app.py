"""Puts the stack into an app, whose context is cdk.json's also without the CDK CLI."""

import os
import sys

from aws_cdk import App, Validations
from cdk_nag import AwsSolutionsChecks

from infra.egress import say
from infra.layers import PYTHON, compiler
from infra.settings import Settings, SettingsError, context
from infra.stack import AutocoderStack

NO_BYTECODE = f"no python{PYTHON} on PATH: the layers hold no bytecode, cold starts are slower"
SET_UP_FIRST = (
    "keys and template can't be seen from here: run `autocoder setup{stage}` before you deploy"
)


def synthesize() -> None:
    """Write the cloud assembly to CDK_OUTDIR, or to cdk.out.

    `-c stage=NAME` is another stage than cdk.json's; a finding of cdk-nag that is not explained
    fails it.
    """
    try:
        app = App(
            context=context(),
            outdir=os.environ.get("CDK_OUTDIR", "cdk.out"),  # without it, it is a temp folder
        )
        stage = app.node.try_get_context("stage")
        settings = Settings.load(stage)
    except SettingsError as problem:
        say(str(problem))
        sys.exit(2)
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    stack = AutocoderStack(app, settings.stack_name, settings=settings)
    assembly = app.synth()
    say(f"synthesized to {assembly.directory}")
    if "CDK_CLI_VERSION" not in os.environ:  # the CLI shows them itself
        for message in assembly.get_stack_by_name(settings.stack_name).messages:
            say(f"warning: {message.entry.data}")
    hosts = ", ".join(stack.egress.package_hosts) or "no host"
    say(f"note: sandboxes may reach {hosts}; {settings.model_host} while the agent runs")
    say(f"note: {SET_UP_FIRST.format(stage=f' --stage {stage}' if stage else '')}")
    if not compiler():
        say(f"note: {NO_BYTECODE}")
