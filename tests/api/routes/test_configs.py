"""`GET /v1/configs/{kernel}`: one result, or a problem that names the nearest alternatives."""

from __future__ import annotations

import pytest

from tilewise.db.records import Clock, Problem, Scope, Status, Trial
from tilewise.kernels import registry
from tilewise.kernels.source import source_hash

ASKED = "/v1/configs/row_reduce?M=1000&N=8192&device=Ascend910B4"


def test_a_tuned_problem_answers_its_best_config_with_the_evidence(client, tune):
    tune()
    response = client.get(f"{ASKED}&dtype=float32&match=exact")
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert response.json() == {
        "kernel": "row_reduce",
        "dims": {"M": 1000, "N": 8192},
        "dtype": "float32",
        "device": "Ascend910B4",
        "clock": "modelled",
        "toolchain": "model-1",
        "source_hash": source_hash(registry.load("row_reduce")),
        "cores": 40,
        "match": "exact",
        "distance": 0.0,
        "verified": True,
        "verified_by": "reference",
        "config": {"BLOCK_SIZE_M": 25, "SUB_BLOCK_SIZE_M": 25, "BLOCK_SIZE_N": 256, "multibuffer": True},
        "time_us": 31.5,
        "samples": 1,
        "default": {
            "config": {"BLOCK_SIZE_M": 32, "SUB_BLOCK_SIZE_M": 25, "BLOCK_SIZE_N": 256, "multibuffer": True},
            "time_us": 52.0,
        },
        "trials": {
            "total": 3,
            "correct": 2,
            "constraints": 0,
            "compile": 1,
            "correctness": 0,
            "runtime": 0,
            "timeout": 0,
            "unmodelled": 0,
        },
        "evaluations_to_best": 3,
        "seconds": 3.75,
        "why": "40 programs on 40 cores, no tail rows",
        "tuned_at": "2026-11-20T12:00:00+00:00",
    }


def test_a_result_recorded_while_the_server_runs_is_served(client, tune, problem_of):
    problem_of(client.get(ASKED), 404)
    tune()
    assert client.get(ASKED).status_code == 200


def test_the_id_of_a_modelled_device_means_its_name(client, tune):
    tune()
    asked = "/v1/configs/row_reduce?M=1000&N=8192&device="
    for _ in range(2):
        assert client.get(f"{asked}model:Ascend910B4").json() == client.get(f"{asked}Ascend910B4").json()
    query = {"kernel": "row_reduce", "dims": {"M": 1000, "N": 8192}, "device": "model:Ascend910B4"}
    assert client.post("/v1/lookup", json={"queries": [query]}).json()["results"][0]["device"] == "Ascend910B4"


def test_the_order_of_the_parameters_does_not_matter(client, tune):
    tune()
    assert client.get("/v1/configs/row_reduce?device=Ascend910B4&N=8192&M=1000").status_code == 200


def test_a_miss_names_at_most_five_tuned_shapes_nearest_first(client, tune, problem_of):
    for m in (1, 500, 900, 1100, 2000, 100000):
        tune(dims={"M": m, "N": 8192})
    tune(dims={"M": 1000, "N": 8191}, dtype="float16")
    tune(dims={"M": 1000, "N": 8191}, device="Ascend910B1")
    problem = problem_of(client.get(ASKED), 404)
    assert problem["type"] == "urn:tilewise:problem:not-tuned"
    assert problem["nearest"] == [{"M": m, "N": 8192} for m in (1100, 900, 500, 2000, 100000)]
    assert problem["detail"] == (
        "row_reduce M=1000,N=8192 float32 is not tuned for Ascend910B4; nearest tuned shapes: "
        "M=1100,N=8192; M=900,N=8192; M=500,N=8192; M=2000,N=8192; M=100000,N=8192"
    )


def test_a_miss_on_another_device_names_the_devices_with_results(client, tune, problem_of):
    tune()
    problem = problem_of(client.get("/v1/configs/row_reduce?M=1000&N=8192&device=NVIDIA%20H100"), 404)
    assert problem["nearest"] == []
    assert problem["detail"].endswith("is not tuned for NVIDIA H100; devices with results: Ascend910B4")


def test_a_result_of_another_version_of_the_kernel_is_not_exact(client, tune, problem_of):
    tune(source_hash="of-another-version")
    problem = problem_of(client.get(ASKED), 404)
    assert problem["nearest"] == []
    assert "another version of the kernel's source" in problem["detail"]


def test_a_kernel_of_a_users_file_is_looked_up_by_its_name(client, tune):
    tune(kernel="my_kernel", source_hash="mine", dims={"ROWS": 7})
    response = client.get("/v1/configs/my_kernel?ROWS=7&device=Ascend910B4")
    assert (response.status_code, response.json()["kernel"]) == (200, "my_kernel")


def test_a_users_kernel_is_held_to_its_stored_dimensions(client, tune, problem_of):
    tune(kernel="my_kernel", source_hash="mine", dims={"ROWS": 7})
    problem = problem_of(client.get("/v1/configs/my_kernel?M=7&device=Ascend910B4"), 400)
    assert problem["detail"] == "my_kernel has the dimensions ROWS; given: 'M'"
    problem = problem_of(client.get("/v1/configs/my_kernel?ROWS=8&device=Ascend910B4"), 404)
    assert problem["nearest"] == [{"ROWS": 7}]


def test_an_unknown_kernel_is_not_found(client, problem_of):
    problem = problem_of(client.get("/v1/configs/row_redcue?M=1&N=1&device=Ascend910B4"), 404)
    assert problem["type"] == "urn:tilewise:problem:unknown-kernel"
    assert problem["detail"].startswith("unknown kernel 'row_redcue'; did you mean row_reduce? registered: ")
    assert problem["detail"].endswith("; no other kernel has stored results")


def test_a_kernel_name_is_never_imported_as_a_file(client, tmp_path, monkeypatch, problem_of):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("open('imported', 'w')\n")
    problem_of(client.get("/v1/configs/mine.py:SPEC?M=1&device=Ascend910B4"), 404)
    query = {"kernel": f"{tmp_path}/mine.py:SPEC", "dims": {"M": 1}, "device": "Ascend910B4"}
    assert client.post("/v1/lookup", json={"queries": [query]}).json()["results"][0]["config"] is None
    assert not (tmp_path / "imported").exists()


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        ("N=8192&device=A", "kernel row_reduce needs M, N; M is missing"),
        ("device=A", "kernel row_reduce needs M, N; M, N is missing"),
        ("M=1&N=1&K=1&device=A", "kernel row_reduce has no dimension K; it has M, N"),
        ("M=1&N=1&m=one&device=A", "kernel row_reduce has no dimension m; it has M, N"),
        ("M=1&N=1", "device is missing; expected the name of a device, such as Ascend910B4"),
        ("M=1&N=1&device=", "device is empty; give it a value or leave it out"),
        ("M=1&M=1&N=1&device=A", "'M' is given more than once; give it once"),
        ("M=1&N=1&device=A&device=B", "'device' is given more than once; give it once"),
        (
            "M=1&N=1&device=A&dtype=float64",
            "kernel row_reduce does not take 'float64'; it takes float32, float16, bfloat16",
        ),
        (
            "M=1&N=1&device=A&match=best",
            "match is 'best'; expected exact, older, nearest, portfolio or predicted",
        ),
        ("M=1&N=1&device=A&toolchain=", "toolchain is empty; give it a value or leave it out"),
    ],
)
def test_a_query_that_makes_no_sense_is_refused_in_one_line(client, problem_of, query, detail):
    assert problem_of(client.get(f"/v1/configs/row_reduce?{query}"), 400)["detail"] == detail


NO_SIZES = [
    "0",
    "-1",
    "1.5",
    "5.0",
    "1e3",
    "1_000",
    "%205",
    "5%20",
    "5%0A",
    "%2B5",
    "007",
    "0x10",
    "%D9%A5",
    "",
]
TOO_LARGE = ["2147483648", "9" * 5000]


@pytest.mark.parametrize("size", [*NO_SIZES, *TOO_LARGE])
def test_a_size_is_plain_digits_from_1_to_the_largest_32_bit_integer(client, problem_of, size):
    detail = problem_of(client.get(f"/v1/configs/row_reduce?M={size}&N=1&device=A"), 400)["detail"]
    assert detail.startswith("M is '")
    assert detail.endswith("; expected a whole number from 1 to 2147483647")
    assert len(detail) < 120


@pytest.mark.parametrize(("size", "shown"), [("nan", "'nan'"), ("M", "'M'"), ("true", "True")])
def test_a_word_is_no_size(client, problem_of, size, shown):
    detail = problem_of(client.get(f"/v1/configs/row_reduce?M={size}&N=1&device=A"), 400)["detail"]
    assert detail == f"dimension M is {shown}; expected a whole number from 1 to 2147483647"


@pytest.mark.parametrize("size", [1, 2**31 - 1])
def test_the_smallest_and_the_largest_size_are_looked_up(client, tune, size):
    tune(dims={"M": size, "N": 1})
    assert client.get(f"/v1/configs/row_reduce?M={size}&N=1&device=Ascend910B4").json()["dims"] == {"M": size, "N": 1}


GEMM = "/v1/configs/gemm?M=16&N=32&K=64&dtype=bfloat16&device=Ascend910B4"


@pytest.mark.parametrize(
    ("flags", "detail"),
    [
        ("column_major=yes", "flag column_major is 'yes'; expected one of false, true"),
        ("activation=tanh", "flag activation is 'tanh'; expected one of 'none', 'relu', 'silu', 'gelu'"),
        ("causal=true", "kernel gemm has no dimension causal; it has M, N, K, and the flags column_major, bias, "),
    ],
)
def test_a_flag_that_a_kernel_cannot_have_is_refused(client, problem_of, flags, detail):
    assert problem_of(client.get(f"{GEMM}&{flags}"), 400)["detail"].startswith(detail)


def test_a_result_answers_for_its_own_flags_only(client, problem_of):
    problem = Problem("gemm", {"M": 16, "N": 32, "K": 64}, "bfloat16", {"activation": "silu", "bias": True})
    scope = Scope(problem, source_hash(registry.load("gemm")), "Ascend910B4", Clock.MEASURED, "a toolchain", 20)
    client.app.state.store.record(scope, [Trial({"BLOCK_M": 16}, Status.CORRECT, time_us=5.0, verified=True)])
    found = client.get(f"{GEMM}&activation=silu&bias=true&scaled=false").json()
    assert found["dims"] == {"M": 16, "N": 32, "K": 64, "activation": "silu", "bias": True}
    body = {**found["dims"], "column_major": False}
    query = {"kernel": "gemm", "dims": body, "dtype": "bfloat16", "device": "Ascend910B4"}
    (result,) = client.post("/v1/lookup", json={"queries": [query]}).json()["results"]
    assert result["config"] == {"BLOCK_M": 16}
    for flags in ("", "&activation=silu", "&activation=relu&bias=true"):
        problem_of(client.get(GEMM + flags), 404)
