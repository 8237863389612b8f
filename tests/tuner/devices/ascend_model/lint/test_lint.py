"""Findings in compiled code: each rule on a kernel with that habit, and nothing on one without."""

import json
import os
from types import SimpleNamespace

import pytest
from places import HELPERS, ROOT

from tilewise.errors import Unavailable
from tilewise.kernels import registry
from tilewise.tuner.devices.ascend_model.device import ModelDevice
from tilewise.tuner.devices.ascend_model.lint import lint as lint_module
from tilewise.tuner.devices.ascend_model.lint.finding import RULES, Finding
from tilewise.tuner.space.problem_checks import make_problem


@pytest.fixture(scope="module")
def device(cache_folder):
    with ModelDevice("Ascend910B4", jobs=1, cache_folder=cache_folder) as device:
        yield device


@pytest.fixture(scope="module")
def linted(device):
    """The findings about a config of a kernel of `lint_kernels.py`, or of the project's own."""

    def run(name, dtype="float16", tile=(), *, min_share=0.02, **dims):
        spec = registry.load(f"{HELPERS / 'lint_kernels.py'}:{name}" if name.isupper() else name)
        problem = make_problem(spec, dims, dtype)
        config = {**spec.default(problem, device.target), **dict(tile)}
        return device.lint(spec, problem, config, min_share=min_share)

    return run


def by_rule(found):
    return {finding.rule.id: finding for finding in found.findings}


def test_wrapped_columns_of_a_product_are_read_element_by_element_and_cost_most(linted):
    found = linted("WRAPPED", M=1024, N=1024, K=1024)
    elements = found.findings[0]
    assert elements.rule.id == "element-access"
    assert elements.message == (
        "b_ptr is read element by element, 4096 elements on each trip of the loop: "
        "its offsets are wrapped by a remainder (%)"
    )
    assert "(cols % N)" in elements.place.text
    assert "(cols % N)" in elements.cause.text
    assert elements.cost_us > 0.9 * found.time_us


def test_wrapped_rows_are_loaded_one_by_one(linted):
    found = linted("WRAPPED_ROWS", M=1024, N=1024, K=1024)
    rows = found.findings[0]
    assert rows.rule.id == "row-access"
    assert "rows of a_ptr are loaded one by one, 64 per tile" in rows.message
    assert "(rows % M)" in rows.cause.text
    assert "mask rows and columns outside" in rows.remedy
    assert rows.cost_us > 0.5 * found.time_us


def test_code_that_cannot_be_timed_gives_findings_without_costs_and_the_reason(linted):
    found = linted("COUNTED", "int32", M=320, N=256)
    assert found.time_us is None
    assert "depends on tensor contents" in found.not_modelled
    assert found.findings
    assert all(finding.cost_us is None for finding in found.findings)
    assert "modelled_cost_us" not in found.findings[0].to_json(None)


def test_a_run_time_inner_stride_costs_copies_and_waits_between_cores(linted):
    (finding,) = linted("RUN_TIME_STRIDE", M=1024, N=1024, K=1024).findings
    assert finding.rule.id == "inner-stride"
    assert "a_ptr is addressed with a stride known only at run time (here 1)" in finding.message
    assert "copy the tile to workspace for the cube core, and the compiled code has 6 waits" in finding.message
    assert "tl.constexpr" in finding.remedy
    assert "inner[None, :] * step" in finding.place.text


def test_the_same_product_with_masks_and_contiguous_rows_has_none_of_these(linted):
    found = linted("MASKED", M=1024, N=1024, K=1024)
    assert by_rule(found).keys() == {"program-starts"}
    assert found.time_us > 0


def test_rows_too_far_apart_are_found_from_the_stride_on_that_the_instruction_cannot_hold(linted):
    (finding,) = (each for each in linted("MASKED", M=128, N=65536, K=256).findings if each.rule.id == "far-rows")
    assert finding.message == "rows of b_ptr are 65536 elements apart, so the tile is loaded to L1 row by row"
    assert "tl.load(b_ptr" in finding.place.text
    near = linted("MASKED", M=128, N=65534, K=256)
    assert "far-rows" not in by_rule(near)
    assert finding.cost_us > near.time_us  # the cliff costs more than all of the work just below it


def test_a_mask_that_is_added_to_a_product_is_named_with_its_line_and_a_remedy(linted):
    finding = by_rule(linted("ADDED_MASK", M=64, N=101))["added-mask"]
    assert "tl.dot(a, b)" in finding.place.text
    assert "tl.where(" in finding.remedy
    assert "added-mask" not in by_rule(linted("SELECTED_MASK", M=64, N=101))


def test_masks_that_cut_every_tile_refill_l1_at_a_cost_and_full_tiles_do_not(linted):
    finding = by_rule(linted("MASKED", M=1008, N=1008, K=1008))["masked-refill"]
    assert "first fills its tile in L1" in finding.message
    assert finding.cost_us > 0
    assert "masked-refill" not in by_rule(linted("MASKED", M=1024, N=1024, K=1024, min_share=0.0))


def test_lost_double_buffering_names_the_memory_and_the_buffers(linted):
    tile = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 512}
    found = linted("MASKED", tile=tile, M=1024, N=1024, K=1024)
    finding = by_rule(found)["double-buffering-lost"]
    assert "the 512 KiB of L1" in finding.message
    assert finding.message.index("b_ptr (256 KiB)") < finding.message.index("a_ptr (128 KiB)")
    assert "tl.load(b_ptr" in finding.place.text
    assert 0 < finding.cost_us < found.time_us
    kept = linted("MASKED", tile={**tile, "BLOCK_K": 256}, M=1024, N=1024, K=1024)
    assert "double-buffering-lost" not in by_rule(kept)


def test_a_tile_that_does_not_fit_is_an_error_at_the_kernel_with_wanted_and_had(linted):
    (finding,) = linted("MASKED", tile={"BLOCK_M": 256, "BLOCK_N": 256}, M=1024, N=1024, K=1024).findings
    assert finding.rule.level == "error"
    assert finding.message == "product_kernel needs 256 KiB of L0C, which has 128 KiB"
    assert finding.place.text == "def product_kernel("


def test_64_bit_integers_of_a_tile_are_computed_by_the_scalar_unit(linted):
    found = linted("WIDE", "int32", M=320, N=256)
    (finding,) = found.findings
    assert finding.rule.id == "scalar-arithmetic"
    assert finding.message == "i64 additions run one by one on the scalar unit, 2048 elements"
    assert finding.place.text == "x = (x.to(tl.int64) + 3).to(tl.int32)"
    plain = linted("COPIED", "int32", M=320, N=256)
    assert finding.cost_us == pytest.approx(found.time_us - plain.time_us, rel=0.1)


@pytest.mark.parametrize("name", ["COPIED", "LISTED"])
def test_rows_copied_or_gathered_as_whole_rows_are_clean(name, linted):
    assert linted(name, "int32", M=320, N=256).clean


def test_programs_that_leave_cores_idle_in_the_last_wave(linted):
    finding = by_rule(linted("row_reduce", "float32", M=4096, N=4096))["idle-cores"]
    assert "128 programs, and the last of 4 waves has 8" in finding.message
    assert "idle-cores" not in by_rule(linted("COPIED", "int32", M=320, N=256, min_share=0.0))


def test_a_launch_that_only_combines_is_not_told_to_use_all_cores(linted):
    assert not any("combine_kernel" in each.message for each in linted("sum_all", "float32", N=2**22).findings)


def test_findings_below_the_least_share_are_left_out_and_the_dearest_come_first(linted):
    everything = linted("MASKED", M=1000, N=1000, K=1000, min_share=0.0)
    costs = [finding.cost_us for finding in everything.findings]
    assert costs == sorted(costs, reverse=True)
    assert len(linted("MASKED", M=1000, N=1000, K=1000, min_share=0.1).findings) < len(costs)


def test_a_kernel_that_cannot_be_compiled_is_one_clear_error(linted):
    with pytest.raises(Unavailable, match=r"cannot lint block_fp8_gemm: Ascend910B4 has no 8-bit floats \(fp8\); "):
        linted("block_fp8_gemm", "float8_e4m3fn", M=256, N=256, K=256)


PRODUCT, ROWS = {"M": 1024, "N": 1024, "K": 1024}, {"M": 320, "N": 256}
LINTED = {
    "columns wrapped": ("WRAPPED", "float16", {}, PRODUCT),
    "rows wrapped": ("WRAPPED_ROWS", "float16", {}, PRODUCT),
    "a stride at run time": ("RUN_TIME_STRIDE", "float16", {}, PRODUCT),
    "whole tiles": ("MASKED", "float16", {}, PRODUCT),
    "tails": ("MASKED", "float16", {}, {"M": 1008, "N": 1008, "K": 1008}),
    "far rows": ("MASKED", "float16", {}, {"M": 128, "N": 65536, "K": 256}),
    "too large for two buffers": ("MASKED", "float16", {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 512}, PRODUCT),
    "too large": ("MASKED", "float16", {"BLOCK_M": 256, "BLOCK_N": 256}, PRODUCT),
    "an added mask": ("ADDED_MASK", "float16", {}, {"M": 64, "N": 101}),
    "counted": ("COUNTED", "int32", {}, ROWS),
    "wide integers": ("WIDE", "int32", {}, ROWS),
    "copied rows": ("COPIED", "int32", {}, ROWS),
    "listed rows": ("LISTED", "int32", {}, ROWS),
    "an idle wave": ("row_reduce", "float32", {}, {"M": 4096, "N": 4096}),
    "two launches": ("sum_all", "float32", {}, {"N": 2**22}),
}
_PLACES = ("file", "line", "cause", "cause_file")
FINDINGS = ROOT / "tests/golden/findings.json"
"""All that is found in each of them. `WRITE_FINDINGS=1 pytest` on this file writes it anew, if a change is meant."""


def test_findings_are_to_the_letter_those_of_the_kept_file(linted):
    """Most of these are compiled for the other tests here."""
    now = {}
    for case, (name, dtype, tile, dims) in LINTED.items():
        found = linted(name, dtype, tile, min_share=0.0, **dims)
        rows = [finding.to_json(found.time_us) for finding in found.findings]
        now[case] = [{key: value for key, value in row.items() if key not in _PLACES} for row in rows]
    if os.environ.get("WRITE_FINDINGS"):
        FINDINGS.write_text(json.dumps(now, indent=1) + "\n")
    assert now == json.loads(FINDINGS.read_text())


def test_every_rule_has_a_summary_and_a_help_of_whole_sentences():
    assert all(rule.summary.endswith(".") and rule.help.endswith(".") for rule in RULES.values())


@pytest.mark.parametrize(
    ("share", "kept"),
    [
        ({}, [90.0, 2.5, 2.0, None]),
        ({"min_share": 0.025}, [90.0, 2.5, None]),
        ({"min_share": 0.0}, [90.0, 2.5, 2.0, 1.9, None]),
    ],
)
def test_findings_of_less_than_two_percent_or_without_cost_are_left_out(monkeypatch, share, kept):
    rule, launch = RULES["far-rows"], SimpleNamespace(compiled=SimpleNamespace(refusal="", overflowed=False))
    made = [Finding(rule, f"costs {us}", "", None, None, us) for us in (1.9, None, 2.0, 90.0, 0.0, 2.5)]
    course = SimpleNamespace(time=SimpleNamespace(time_us=100.0))
    monkeypatch.setattr(lint_module, "located_launches", lambda *given: [launch])
    monkeypatch.setattr(lint_module, "_code", lambda *given: made)
    monkeypatch.setattr(lint_module, "_programs", lambda *given, spare_us: [])
    analysis = SimpleNamespace(launches=[course], time_us=100.0)
    found = lint_module.lint(None, None, {}, None, None, analysis, 50.0, **share)
    assert [finding.cost_us for finding in found.findings] == kept
    assert (found.time_us, found.not_modelled, found.clean) == (100.0, "", False)


@pytest.mark.parametrize(("floor_us", "spare_us"), [(50.0, 70.0), (119.5, 0.5), (130.0, 0.0)])
def test_work_on_all_cores_may_spare_the_time_of_all_launches_above_the_floor(monkeypatch, floor_us, spare_us):
    """The longest launch alone is told to use all cores."""
    given = []
    launches = [SimpleNamespace(compiled=SimpleNamespace(refusal="", overflowed=False)) for _ in range(2)]
    courses = [SimpleNamespace(time=SimpleNamespace(time_us=time_us)) for time_us in (100.0, 20.0)]
    monkeypatch.setattr(lint_module, "located_launches", lambda *given: launches)
    monkeypatch.setattr(lint_module, "_code", lambda *given: [])
    monkeypatch.setattr(
        lint_module, "_programs", lambda launch, course, target, spare_us: given.append((course, spare_us)) or []
    )
    analysis = SimpleNamespace(launches=courses, time_us=120.0)
    lint_module.lint(None, None, {}, None, None, analysis, floor_us)
    assert given == [(courses[0], spare_us)]
