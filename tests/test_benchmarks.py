import sys

import pytest

from benchmarks import (
    capture,
    fashion_mlp,
    isolation,
    kernels,
    machine,
    markdown,
    matmul_limits,
    models,
    noise,
    overhead,
    qwix_mlp,
    transformer,
)
from tests.factories import make_confirmation, make_latency, make_point
from tuner.errors import InputError


def test_a_table_is_aligned_markdown():
    text = markdown.table(("program", "ms"), [("a|b", "1.25"), ("a longer one", "10")])
    assert text.splitlines() == [
        "| program      |   ms |",
        "| ------------ | ---: |",
        "| a\\|b         | 1.25 |",
        "| a longer one |   10 |",
    ]


def test_a_row_of_another_length_is_refused():
    with pytest.raises(ValueError, match="has 1 cells for 2 columns"):
        markdown.table(("program", "ms"), [("alone",)])


def test_a_ratio_carries_its_interval():
    latency = make_latency(0.5)
    assert markdown.ratio(latency) == f"0.500 ({latency.low:.3f}..{latency.high:.3f})"


def test_the_header_names_cpu_versions_and_threads():
    import jax

    text = machine.header()
    assert f"jax {jax.__version__}, jaxlib " in text
    assert " threads, load " in text
    assert " UTC" in text


@pytest.mark.parametrize(
    ("flags", "megahertz", "peak"),
    [("fma avx2", "2500.0", 80.0), ("fma avx2 avx512f", "2000.0", 128.0), ("avx2", "2500.0", None), ("fma", "", None)],
)
def test_the_peak_follows_from_clock_and_vector_width(monkeypatch, flags, megahertz, peak):
    monkeypatch.setattr(machine, "_cpuinfo", {"flags": flags, "cpu MHz": megahertz}.get)
    found = machine.peak_gflops_per_core()
    assert (found and found[0]) == peak


def test_without_qwix_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "qwix", None)
    with pytest.raises(InputError, match="qwix is not installed: pip install qwix flax"):
        qwix_mlp.quantized({}, ())


def test_every_product_agrees_with_float32():
    ways = matmul_limits.products((1, 32, 8))  # one row: all of them
    function, operands = ways[matmul_limits.AGAIN]
    expected = function(*operands)
    for label, (function, operands) in ways.items():
        result = function(*operands)
        assert result.shape == (1, 8), label
        if "alone" not in label:  # integers without their scales
            assert abs(result.astype("float32") - expected).max() < 0.25, label


def test_a_neighbor_is_gone_afterwards(monkeypatch):
    started = []
    popen = noise.subprocess.Popen
    monkeypatch.setattr(noise.subprocess, "Popen", lambda *given: started.append(popen(*given)) or started[-1])
    with noise.busy_neighbor():
        assert started[0].poll() is None
    assert started[0].poll() is not None


def test_a_choice_that_was_not_made_leaves_the_program_as_it_is():
    assert noise.confirmed_ratio(None) == 1.0
    assert noise.confirmed_ratio(make_point(confirmation=make_confirmation(0.7))) == 0.7


def test_the_loop_and_the_scan_are_one_transformer():
    import numpy as np

    stacked, x = transformer.make_stacked(3)
    blocks = {f"block_{i}": {name: part[i] for name, part in stacked.items()} for i in range(3)}
    np.testing.assert_allclose(
        transformer.apply(blocks, x), transformer.apply_stacked(stacked, x), rtol=1e-4, atol=1e-5
    )


def test_a_model_that_is_not_there_is_refused_with_the_list(capsys):
    with pytest.raises(SystemExit):
        models.main(["glass_llm"])
    assert (
        "there is no 'glass_llm'; give some of fashion_mlp, fashion_mlp@1, fashion_resnet," in capsys.readouterr().err
    )


@pytest.mark.slow
def test_a_model_is_shown_with_all_that_was_measured_and_its_goal():
    goal = models.Goal(study="digits_mlp", ratio=1e-6)
    title, batch, rows, verdict = [block for block in models.blocks([goal], "2s", smoke=True) if "AMX" not in block]
    assert title == "## digits_mlp"
    assert batch.endswith("holdout examples; a search of 2s.")
    assert "| jax.jit " in rows
    assert "| astype(bfloat16) " in rows
    assert "goal 0.00: " in verdict
    assert "not met" in verdict


# qwix, where it is installed, still uses a name that Flax has deprecated.
@pytest.mark.filterwarnings("ignore:'VariableState' was removed:DeprecationWarning")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (fashion_mlp, "| policy of all `original` |"),
        (overhead, "| `tuner --help`   |"),
        (matmul_limits, "| i8/i8/i32 with quantizing and scaling "),
        (kernels, "| 3x3, small    |"),
        (capture, "- capture and listing of the scan to that of 1 layers: "),
        (isolation, "| start of the child, s |"),
        (noise, "- a neighbor, smallest memory: the confirmed ratio of what was chosen moves by "),
    ],
)
def test_each_benchmark_runs(module, expected, capsys):
    assert module.main(["--smoke"]) == 0
    printed = capsys.readouterr().out
    assert "smoke run: the numbers mean nothing" in printed
    assert expected in printed
