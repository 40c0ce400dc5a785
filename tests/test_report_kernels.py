"""What is said of a kernel that was compared in the whole program."""

import pytest

from tests.test_kernel_choice import BROKEN, FASTER, SLOWER, check
from tuner.kernel_choice import unknown
from tuner.report.kernels import check_text


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (FASTER, "(2 layers): 0.120 (0.110..0.130) of the plain kernel's time in the whole program."),
        (SLOWER, "(2 layers): 1.100 (1.050..1.200) of the plain kernel's time in the whole program, dropped."),
        (BROKEN, "(2 layers) could not be compared in the whole program, dropped: it crashes."),
        (
            check("rows", unknown("no memory")),
            "(2 layers) could not be compared in the whole program, kept, as the fastest alone: no memory.",
        ),
    ],
)
def test_a_check_in_one_sentence(found, text):
    assert check_text(found) == f"Kernel {found.kernel} in f32/f32/f32 {text}"
