"""Reading the records of Ascend's profilers in the form of every release."""

from decimal import Decimal

import pytest

from tilewise.tuner.devices.npu.records import ClockError, KernelRecord, read_kernel_details, run_times_us

# Header lines and rows as torch_npu writes them. 2.9 and older have `Block Dim`.
LEVEL1_2_9 = (
    "Device_id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Dim,"
    "Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats\r\n"
    '0,halves_kernel,halves_kernel,AI_VECTOR_CORE,1774670741777000.125\t,18.32,0.02,25,"""100000""",FLOAT,ND,"""100000""",FLOAT,ND\r\n'
)
# 2.14 has `Block Num`.
LEVEL1_2_14 = (
    "Device_id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Num\r\n"
    "0,halves_kernel,halves_kernel,AI_VECTOR_CORE,1774670741777000.125\t,18.32,0.02,25\r\n"
)
# A schedule adds the step; all of op_summary's columns add many more, with quoted names.
ALL_COLUMNS = (
    "Step Id,Device_id,Model ID,Task ID,Stream ID,Name,Type,OP State,Accelerator Core,Start Time(us),Duration(us),"
    "Wait Time(us),Block Num,Mix Block Num,HF32 Eligible,Context ID,aiv_time(us),aiv_vec_ratio\r\n"
    '3,0,4294967295,7,2,"halves_kernel",halves_kernel,dynamic,AI_VECTOR_CORE,"1774670741777000.125\t",18.320,0.02,25,0,NO,N/A,17.9,0.4\r\n'
)


def written(folder, text, rank="host_77_20261121090000000_ascend_pt"):
    output = folder / rank / "ASCEND_PROFILER_OUTPUT"
    output.mkdir(parents=True)
    (output / "kernel_details.csv").write_bytes(text.encode())
    return folder


@pytest.mark.parametrize("text", [LEVEL1_2_9, LEVEL1_2_14, ALL_COLUMNS, "\ufeff" + LEVEL1_2_14])
def test_every_releases_columns_say_the_same(tmp_path, text):
    (record,) = read_kernel_details(written(tmp_path, text))
    assert record == KernelRecord("halves_kernel", Decimal("1774670741777000.125"), 18.32)


def test_rows_come_in_the_order_of_their_start_to_the_nanosecond(tmp_path):
    """As floats the two starts would be equal."""
    later, sooner = "1774670741777000.126", "1774670741777000.125"
    rows = "".join(f"0,k{start[-1]},k,AI_CORE,{start}\t,1.0,0,1\r\n" for start in (later, sooner))
    records = read_kernel_details(written(tmp_path, LEVEL1_2_14.splitlines(keepends=True)[0] + rows))
    assert [record.name for record in records] == ["k5", "k6"]


def test_a_file_without_rows_is_no_records(tmp_path):
    assert read_kernel_details(written(tmp_path, LEVEL1_2_14.splitlines(keepends=True)[0])) == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (LEVEL1_2_14[:-6], "cut off in its last line"),
        (LEVEL1_2_14[:-2] + "\n0,halves_kernel,", "cut off in its last line"),
        (LEVEL1_2_14 + "0,halves_kernel\r\n", "line 3 of .* has no time"),
        (LEVEL1_2_14.replace("18.32", "N/A"), "line 2 of .* has no time"),
        (LEVEL1_2_14.replace("Duration(us)", "Task Duration(us)"), r"no column Duration\(us\)"),
        (LEVEL1_2_14.replace("Duration(us)", "Duration(ns)"), r"no column Duration\(us\)"),
        ("", "cut off"),
    ],
)
def test_a_file_of_another_form_is_refused_in_one_line(tmp_path, text, complaint):
    with pytest.raises(ClockError, match=complaint) as caught:
        read_kernel_details(written(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_two_ranks_or_none_are_refused(tmp_path):
    with pytest.raises(ClockError, match="wrote 0 kernel_details"):
        read_kernel_details(tmp_path)
    for rank in ("host_77_1_ascend_pt", "host_78_1_ascend_pt"):
        written(tmp_path, LEVEL1_2_14, rank)
    with pytest.raises(ClockError, match=r"wrote 2 kernel_details\.csv files; one process on one NPU writes one"):
        read_kernel_details(tmp_path)


def records(*names_and_us):
    return [KernelRecord(name, Decimal(i), us) for i, (name, us) in enumerate(names_and_us)]


CLEAR = ("aclnnReduceSum_ReduceSumOpAiCore_ReduceSum", 200.0)


def test_a_runs_time_is_that_of_its_kernels_alone():
    ran = records(CLEAR, ("one", 1.0), ("two", 2.0), CLEAR, ("one", 1.5), ("two", 2.5))
    assert run_times_us(ran, [["one", "two"]], [[0], [0]]) == [[3.0, 4.0]]


def test_jobs_that_take_turns_are_told_apart_by_their_place():
    ran = records(CLEAR, ("one", 1.0), CLEAR, ("one", 5.0), CLEAR, ("one", 2.0), CLEAR, ("one", 6.0))
    assert run_times_us(ran, [["one"], ["one"]], [[0, 1], [0, 1]]) == [[1.0, 2.0], [5.0, 6.0]]


def test_a_function_that_a_run_launches_twice_counts_twice():
    assert run_times_us(records(*[("one", 1.0)] * 4), [["one", "one"]], [[0], [0]]) == [[2.0, 2.0]]


@pytest.mark.parametrize("reported", ["{}", "{}_mix_aiv", "{}_mix_aic"])
def test_a_kernel_is_known_under_the_end_of_its_name_and_a_suffix(reported):
    function = "layer_norm_backward_of_weights_and_bias_second_pass_kernel"
    assert run_times_us(records((reported.format(function[-49:]), 2.0)), [[function]], [[0]]) == [[2.0]]


@pytest.mark.parametrize("other", ["softmax_kernel_2", "my_softmax_kernel", "softmax"])
def test_another_kernel_of_a_like_name_is_not_taken_for_it(other):
    with pytest.raises(ClockError, match="0 runs of softmax_kernel were recorded, 1 were made"):
        run_times_us(records((other, 1.0)), [["softmax_kernel"]], [[0]])


def test_lost_records_and_other_orders_are_no_times():
    with pytest.raises(ClockError, match="3 runs of one, two were recorded, 4 were made"):
        run_times_us(records(("one", 1.0), ("two", 2.0), ("one", 1.0)), [["one", "two"]], [[0], [0]])
    with pytest.raises(ClockError, match="recorded in another order"):
        run_times_us(records(("one", 1.0), ("one", 1.0), ("two", 2.0), ("two", 2.0)), [["one", "two"]], [[0], [0]])
