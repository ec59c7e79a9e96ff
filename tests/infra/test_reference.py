"""The pages made from the stack's code say what the code says, and the bills add up."""

import pytest

from infra import costs
from infra.reference import PAGES, total
from infra.settings import ROOT, Settings


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_page_made_from_the_code_is_up_to_date(name: str) -> None:
    assert (ROOT / "docs" / name).read_text() == PAGES[name](), "run `make reference`"


def test_every_setting_is_on_its_page_with_a_meaning() -> None:
    page = (ROOT / "docs" / "settings.md").read_text()
    for name, field in Settings.model_fields.items():
        assert f"| `{name}` |" in page
        assert field.description and field.description in page


def test_a_task_costs_as_long_as_it_runs_and_by_the_size_of_its_sandbox() -> None:
    settings = Settings.load()
    sandbox, function, *_ = costs.task(20, settings)
    assert sandbox.usd == pytest.approx(1200 * (2 * 0.000014 + 4 * 0.0000045))
    assert function.usd == pytest.approx(1200 * 0.5 * 0.0000133334)
    large = settings.model_copy(update={"sandbox_cpus": 4, "sandbox_memory_mb": 8192})
    assert costs.task(20, large)[0].usd == pytest.approx(2 * sandbox.usd)
    assert total(costs.task(40, settings)) > 1.9 * total(costs.task(20, settings))


def test_an_idle_stack_pays_for_its_secrets_and_its_schedules() -> None:
    bill = {item.what: item.usd for item in costs.idle_month()}
    assert bill["two secrets"] == pytest.approx(0.80)
    assert bill["the key of evidence"] == pytest.approx(1.00)
    calls = 60 * 730
    computing = calls * 0.25 * 0.2 * 0.0000133334
    assert bill["dispatch_tasks, every 1 min"] == pytest.approx(computing + calls * 0.2 / 1e6)
