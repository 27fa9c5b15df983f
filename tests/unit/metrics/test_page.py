"""docs/metrics.md tells what there is, and its alert rules can be evaluated."""

import re
from pathlib import Path
from uuid import UUID

import promql_parser
import pytest

from tests.unit.metrics.conftest import Watched
from tests.unit.metrics.support import scraped

PAGE = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text("utf-8")
EXPRESSIONS = [
    *re.findall(r"^ +expr: (.+)$", PAGE, re.MULTILINE),
    *re.findall(r"`((?:sum|up)\b[^`]+)`", PAGE),
]
ROWS = dict(re.findall(r"^\| `(telha_\w+)` \| ([\w, ]*?) *\|", PAGE, re.MULTILINE))


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_is_promql(expression: str) -> None:
    """The parser of a PromQL engine takes it, and it asks for metrics that the page lists."""
    promql_parser.parse(expression)
    assert set(re.findall(r"telha_\w+", expression)) <= set(ROWS)


def test_there_are_two_alert_rules() -> None:
    """Dead letters, and no progress."""
    assert re.findall(r"- alert: (\w+)", PAGE) == ["TelhaDeadLetters", "TelhaNoProgress"]


def test_the_page_lists_every_metric_and_its_labels(watched: Watched) -> None:
    """Each family of a scrape is a row of the table with its labels, and the table has no others."""
    watched.queue.enqueue(UUID(int=1), "embed", None)
    scraped(watched.metrics)
    found = {}
    for family in watched.metrics.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = [label for one in family.samples[:1] for label in one.labels if label != "le"]
        found[name] = ", ".join(labels)
    found["telha_stale_submits_total"] = "call, why"  # no sample before the first
    assert found == ROWS
