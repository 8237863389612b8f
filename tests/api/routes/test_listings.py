"""`/v1/kernels`, `/v1/devices`, and the two health checks."""

from __future__ import annotations

from tilewise.kernels import registry


def test_kernels_lists_every_registered_kernel(client):
    listed = client.get("/v1/kernels").json()["kernels"]
    assert [kernel["name"] for kernel in listed] == registry.names()
    [row_reduce] = [kernel for kernel in listed if kernel["name"] == "row_reduce"]
    assert row_reduce["dims"] == ["M", "N"]
    assert row_reduce["dtypes"] == ["float32", "float16", "bfloat16"]
    assert {"BLOCK_SIZE_M", "num_warps", "multibuffer"} <= set(row_reduce["parameters"])
    assert row_reduce["summary"]


def test_devices_says_of_each_whether_it_is_there_or_why_not(client):
    devices = client.get("/v1/devices").json()["devices"]
    assert {"npu", "cuda", "model:Ascend910B4"} <= {device["id"] for device in devices}
    for device in devices:
        assert device["clock"] == ("modelled" if device["id"].startswith("model:") else "measured")
        assert device["available"] is ("why_not" not in device)
        assert "cores" not in device or device["cores"] > 0


def test_health_checks_answer_while_the_database_does(client):
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json() == {"status": "ok"}


def test_a_server_with_a_broken_database_is_alive_but_not_ready(client, tmp_path, problem_of, break_database):
    break_database()
    assert client.get("/healthz").status_code == 200
    problem = problem_of(client.get("/readyz"), 503)
    assert problem["type"] == "urn:tilewise:problem:database"
    assert str(tmp_path) not in problem["detail"], "a problem must not show paths of the server"
