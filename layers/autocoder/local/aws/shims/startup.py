"""Making moto start and answer faster."""

import functools
import sys

from autocoder.local.aws.absent import AbsentServices


def skip_unused_services() -> None:
    """moto's CloudFormation imports every service; these take 1.4 s and are never called here."""
    sys.meta_path.insert(0, AbsentServices())


def remember_what_a_request_is_for() -> None:
    """moto lists its own folders and inspects its classes for every request: 2 ms, in a lock."""
    import moto.core.responses as responses
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication

    DomainDispatcherApplication.get_backend_for_host = functools.cache(
        DomainDispatcherApplication.get_backend_for_host
    )
    responses.method_names_from_class = functools.cache(responses.method_names_from_class)
