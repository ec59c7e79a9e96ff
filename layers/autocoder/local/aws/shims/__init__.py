"""Every change made to moto, one function each: what moto does, what AWS does.

moto answers the AWS APIs; it was not made to run a system under load. Each shim closes one gap
that a deployed Autocoder would notice. They reach into moto's internals, so the version is pinned.
"""

import importlib.metadata

from autocoder.local.aws.shims import functions, keys, rules, startup, storage, templates, workflows
from autocoder.local.aws.shims.hooks import Hooks

MOTO = "5.2."


def install(hooks: Hooks) -> None:
    check_version()
    startup.remember_what_a_request_is_for()
    functions.run_functions_in_processes(hooks)
    functions.keep_what_cloudformation_says_of_functions()
    functions.name_layers_and_versions_by_arn()
    functions.poll_event_sources(hooks)
    functions.tell_the_accounts_limits()
    keys.make_keys_as_templates_say(hooks)
    keys.sign_digests()
    storage.lock_queues()
    storage.lock_tables()
    storage.snapshot_tables_cheaply()
    storage.lock_objects()
    workflows.execute_state_machines()
    workflows.parse_definitions_once()
    workflows.reuse_boto_clients(hooks)
    workflows.start_executions_once()
    workflows.finish_every_execution()
    workflows.keep_the_reason_of_a_stop()
    rules.deliver_events(hooks)
    rules.fire_schedules(hooks)
    templates.accept_every_resource_type()
    templates.name_the_resource_that_failed()


def check_version() -> None:
    """These shims were written against one minor version of moto: look again at another."""
    version = importlib.metadata.version("moto")
    if not version.startswith(MOTO):
        raise RuntimeError(f"The shims are made for moto {MOTO}x, this is {version}: check each.")
