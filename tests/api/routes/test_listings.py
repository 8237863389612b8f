"""`/v1/kernels`, `/v1/devices`, `/v1/problems`, pages of listings, and the two health checks."""

from __future__ import annotations

import pytest

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


def test_metrics_are_told_while_the_database_fails_and_count_that(client, break_database):
    def errors():
        lines = client.get("/metrics").text.splitlines()
        return [float(line.split()[-1]) for line in lines if line.startswith("tilewise_database_errors_total")]

    assert errors() == [0.0]
    break_database()
    client.app.state.service.metrics.fleet_counted -= 1.0
    assert errors() == [1.0]
    assert errors() == [1.0]  # within a second the fleet is not counted again


def followed(client, path, items):
    """Return the items of all pages of a listing, by their `Link` headers, which agree with `next`."""
    found = []
    while path:
        response = client.get(path)
        found += response.json()[items]
        path = response.links.get("next", {}).get("url")
        assert bool(path) is ("next" in response.json())
        assert not path or response.json()["next"] in path
    return found


def test_problems_are_listed_with_what_is_known_those_written_to_last_first(client, tune, records):
    winner, _ = records
    for m in (1, 2, 3):
        tune(dims={"M": m, "N": 8})
    tune(dims={"M": 1, "N": 8})
    listed = followed(client, "/v1/problems?limit=1&kernel=row_reduce", "problems")
    assert [problem["dims"]["M"] for problem in listed] == [1, 3, 2]
    assert listed[0]["config"] == dict(winner.config)
    assert (listed[0]["time_us"], listed[0]["verified"], listed[0]["trials"]["total"]) == (31.5, True, 3)
    assert listed[0]["speed_up"] == pytest.approx(52.0 / 31.5)
    assert client.get(f"/problems/{listed[0]['key']}").status_code == 200


def test_a_problem_that_nobody_verified_is_listed_without_a_config(client, store_url, records):
    from dataclasses import replace

    from service_fixtures import SCOPE

    from tilewise.db.sql.sql_store import open_store

    with open_store(store_url) as store:
        store.record(SCOPE, [replace(records[0], verified=False)])
    [problem] = client.get("/v1/problems").json()["problems"]
    assert (problem["config"], problem["verified"], problem["trials"]["correct"]) == (None, False, 1)


@pytest.mark.parametrize(("path", "items"), [("/v1/problems", "problems"), ("/v1/trials", "trials")])
def test_listings_are_filtered_by_sizes(client, tune, path, items):
    for m in (1, 11):
        tune(dims={"M": m, "N": 8})
    found = followed(client, f"{path}?dims=M%3D1,N%3D8&limit=2", items)
    assert {each["dims"]["M"] for each in found} == {1}
    assert len(followed(client, f"{path}?dims=N%3D8&limit=2", items)) == 2 * len(found)
    assert client.get(f"{path}?dims=M").status_code == 400
    refused = client.get(f"{path}?dims={'1' * 5000}")
    assert (refused.status_code, len(refused.json()["detail"]) < 200) == (400, True)


def test_an_export_is_filtered_by_sizes(client, tune):
    for m in (1, 11):
        tune(dims={"M": m, "N": 8})
    exports = [client.get(f"/v1/export?dims=M%3D{m}") for m in (1, 2)]
    assert [len(export.json()["entries"]) for export in exports] == [1, 0]
    assert exports[0].headers["etag"] != exports[1].headers["etag"]


def test_jobs_are_filtered_and_listed_in_pages(client, admin):
    for n in (1, 2, 3):
        body = {"kernel": "vector_add", "shapes": [{"N": n}], "device": "model:Ascend910B4"}
        client.post("/v1/jobs", json=body, headers=admin)
    client.delete("/v1/jobs/2", headers=admin)
    assert [job["id"] for job in followed(client, "/v1/jobs?limit=2", "jobs")] == [3, 2, 1]
    assert [job["id"] for job in followed(client, "/v1/jobs?limit=1&state=queued", "jobs")] == [3, 1]
    assert [job["id"] for job in followed(client, "/v1/jobs?kernel=vector_add&state=cancelled", "jobs")] == [2]
    assert followed(client, "/v1/jobs?device=cuda", "jobs") == []
    assert client.get("/v1/jobs?state=lost").status_code == 400
