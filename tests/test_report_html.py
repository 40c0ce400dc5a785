from html.parser import HTMLParser

from tests.factories import make_measurement, make_point, make_policy, make_study
from tests.test_report_front import BASELINE, CAST, INT8
from tuner.policy import Assignment, Policy
from tuner.report.html import front_html, policy_html, study_html
from tuner.store import StudyCounts

EVIL = '<script>alert("x")</script>&'


class Balance(HTMLParser):
    """Every element is closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.tags.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def parsed(page: str) -> Balance:
    parser = Balance()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser


def test_every_text_is_escaped():
    point = make_point(1, label=EVIL, measurement=make_measurement(0.5, effective={EVIL: EVIL}))
    policy = Policy(((EVIL, Assignment()),), provenance={"study": EVIL, "trial": EVIL})
    for page in (front_html(EVIL, [point], [point]), policy_html(policy)):
        assert "script" not in parsed(page).tags
        assert "&lt;script&gt;" in page


def test_a_front_has_a_row_per_point_and_its_comparison():
    page = front_html("digits", [INT8, BASELINE], [CAST])
    parsed(page)
    assert page.count("<tr>") == 5
    assert "For comparison" in page


def test_a_study_says_how_far_its_front_is_complete():
    page = study_html(make_study(counts=StudyCounts(measured=3, pruned=2)), [INT8, BASELINE], [])
    parsed(page)
    assert "up to a drop of 2%" in page
    assert "Complete" not in study_html(make_study(), [INT8, BASELINE], [])


def test_a_policy_has_a_row_per_layer_and_says_what_ran():
    measured = {"effective": {"dense_0": "different: f32"}}
    policy = make_policy("original", "i8/i8/i32", provenance={"study": "digits", "trial": 3, "measured": measured})
    page = policy._repr_html_()
    parsed(page)
    assert page.count("<tr>") == 4
    assert "different: f32" in page
    assert "Trial 3 of study digits" in page


def test_a_policy_of_nowhere_is_only_its_layers():
    assert "Trial" not in policy_html(make_policy())
