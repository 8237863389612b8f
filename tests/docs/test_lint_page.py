"""The page of the linter: its table has every rule."""

from pathlib import Path

import tilewise
from tilewise.tuner.devices.ascend_model.lint.finding import RULES

PAGE = Path(tilewise.__file__).resolve().parents[2] / "docs" / "lint.md"


def test_the_table_has_every_rule_with_its_level_and_summary():
    text = PAGE.read_text()
    rows = text[text.index("<!-- rules -->") : text.index("<!-- end -->")].splitlines()[3:]
    assert rows == [f"| `{rule.id}` | {rule.level} | {rule.summary} |" for rule in RULES.values()]
