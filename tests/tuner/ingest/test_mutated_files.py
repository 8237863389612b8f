"""Five thousand damaged and hostile files: each is read, partly refused, or refused in one line, without any harm."""

from __future__ import annotations

import contextlib
import copy
import gzip
import json
import math
import random
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scopes import changed

from tilewise.db.exchange import jsonfile
from tilewise.db.exchange.foreign.landscapes.t4 import export_t4
from tilewise.db.exchange.import_file import About, ImportFile
from tilewise.db.exchange.native.export_file import encode, export_native
from tilewise.db.exchange.native.runtime_file import WinnersFile, encode_winners
from tilewise.db.exchange.registry import READABLE, read
from tilewise.db.records import Clock, Problem, Question, Scope, Status, Trial, digest
from tilewise.db.sql.sql_store import open_store
from tilewise.errors import BadImport
from tilewise.kernels import registry
from tilewise.kernels.source import source_hash
from tilewise.tuner.ingest.import_checks import checked_import

WRITTEN = datetime(2026, 11, 21, tzinfo=UTC)
ABOUT = About("row_reduce", "Ascend910B4", "float32", {"N": 8192}, ("M",), 40)
CONFIG = {"BLOCK_SIZE_M": 25, "SUB_BLOCK_SIZE_M": 25, "BLOCK_SIZE_N": 256, "multibuffer": True}
EACH = 400

HOSTILE = (
    None,
    True,
    0,
    -1,
    2**63,
    10**400,
    1e308,
    5e-324,
    math.inf,
    -math.inf,
    math.nan,
    "",
    "\ud800",
    "\0",
    "x" * 20_000,
    "!!python/object/apply:os.system ['true']",
    [],
    {},
    [[]] * 50,
    {"a": {"a": {"a": []}}},
    "9" * 5000,
)


def files() -> dict[str, bytes]:
    """Return a valid file of each format, with results of the headline kernel."""
    scope = Scope(
        Problem("row_reduce", {"M": 1000, "N": 8192}, "float32"),
        source_hash(registry.load("row_reduce")),
        "Ascend910B4",
        Clock.MODELLED,
        "t",
        40,
    )
    trials = [
        Trial(
            CONFIG, Status.CORRECT, time_us=47.5, p20_us=47.0, p80_us=48.0, samples=9, verified=True, created=WRITTEN
        ),
        Trial(CONFIG | {"BLOCK_SIZE_N": 512}, Status.COMPILE, "ub overflow", ordinal=2, created=WRITTEN),
    ]
    with open_store("sqlite://") as store:
        store.record(scope, trials)
        store.record(changed(scope, dtype="float16"), trials)
        native, t4 = encode(export_native(store, store.scopes())), json.dumps(export_t4(store, scope)).encode()
    record = CONFIG | {"time": 0.0475, "times": [0.047, 0.048], "timestamp": "2026-11-20 10:00:00"}
    cache = {"device_name": "x", "tune_params_keys": list(CONFIG), "cache": {"a": record, "b": record | {"time": "X"}}}
    attributes = {"num_warps": 4, "num_ctas": 1, "num_stages": 3, "maxnreg": None, "pre_hook": None}
    tuned = {
        "key": [1000, "torch.float32"],
        "configs_timings": [[{"kwargs": {"T": size}, **attributes}, [0.05, 0.04, 0.06]] for size in (1, 2)],
    }
    entries = {
        str(size): {"autotune_key": [size, "torch.float32"], "config": {"kwargs": {"BLOCK_SIZE_M": 4}, **attributes}}
        for size in (1, 2)
    }
    keys = [f"({size}, 'torch.float32')" for size in (1, 2)]
    kept = "BLOCK_SIZE_M: 4, BLOCK_SIZE_N: 512, num_warps: 4, num_ctas: 1, num_stages: 3, maxnreg: None"
    stored = {
        "signature": "JITFunction(kernels:row_reduce)",
        "total_bench_time_s": 1.5,
        "cache": dict.fromkeys(keys, kept),
        "timings": {key: {"values": [0.05, 0.04, 0.06], "lables": ["ms", "min_ms", "max_ms"]} for key in keys},
    }
    return {
        "json": native,
        "t4": t4,
        "kernel-tuner": json.dumps(cache, indent=1).encode(),
        "triton": json.dumps(tuned).encode(),
        "dejavu": json.dumps(stored).encode(),
        "fla": json.dumps({"kernel_name": "row_reduce", "autotune_entries": entries}).encode(),
        "vllm": json.dumps({"1": CONFIG, "64": CONFIG}, indent=4).encode(),
    }


SOUND = files()
WINNERS = encode_winners(json.loads(SOUND["json"])["entries"])


def damaged(data: bytes, dice: random.Random) -> bytes:
    """Flip bits, cut the end or the middle, duplicate, insert or compress pieces."""
    body = bytearray(gzip.compress(data, mtime=0) if dice.random() < 0.1 else data)
    for _ in range(dice.choice((1, 1, 2, 8))):
        at, width = dice.randrange(len(body) + 1), dice.choice((1, 2, 40))
        what = dice.randrange(5)
        if what == 0 and at < len(body):
            body[at] ^= 1 << dice.randrange(8)
        elif what == 1:
            del body[at:]
        elif what == 2:
            del body[at : at + width]
        elif what == 3:
            body[at:at] = body[at : at + width]
        else:
            body[at:at] = dice.choice((b"\0", b"\xff\xfe", b"[" * 3000, b"{}", b'"', b"NaN", b"1e999", b"\x1f\x8b"))
    return bytes(body)


def altered(data: bytes, dice: random.Random) -> bytes:
    """Change the structure: hostile values, and renamed, removed or duplicate keys. The checksum is renewed."""
    document = json.loads(data)
    for _ in range(dice.choice((1, 1, 2, 4))):
        holder = document
        while True:
            keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
            if not keys:
                break
            key = dice.choice(keys)
            if isinstance(holder[key], dict | list) and holder[key] and dice.random() < 0.8:
                holder = holder[key]
                continue
            change(holder, key, dice)
            break
    if isinstance(document, dict) and "sha256" in document and isinstance(document.get("entries"), list):
        with contextlib.suppress(ValueError):  # NaN has no checksum
            document["sha256"] = digest(document["entries"])
    text = json.dumps(document)
    if dice.random() < 0.1:
        text = text.replace("{", '{"key": 1, "key": 2, ', 1)
    return text.encode()


def change(holder: Any, key: Any, dice: random.Random) -> None:
    what = dice.randrange(4)
    if what == 0 and isinstance(holder, dict):
        holder[dice.choice(("", "x" * 1000, "__class__", "M", "time_us"))] = holder.pop(key)
    elif what == 1:
        del holder[key]
    else:
        holder[key] = copy.deepcopy(dice.choice(HOSTILE))


def taken(reading: ImportFile) -> list[Trial]:
    return [trial for offer in reading.offers for trial in offer.trials]


@pytest.mark.in_part(2)
@pytest.mark.parametrize("kind", READABLE)
@settings(max_examples=EACH, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None)
@given(seed=st.integers(0, 2**64))
def test_no_mutation_crashes_or_leaves_anything_impossible(kind, seed):
    dice = random.Random(seed)
    mutated = (damaged if dice.random() < 0.4 else altered)(SOUND[kind], dice)
    try:
        reading = checked_import(read(mutated, "N=8192.json", ABOUT, written=WRITTEN, kind=dice.choice((kind, ""))))
    except BadImport as error:
        check_line(str(error))
        return
    for refusal in reading.refusals:
        check_line(f"{refusal.place}: {refusal.reason}")
    for trial in taken(reading):
        assert trial.status is not Status.CORRECT or 0 < trial.time_us < 4e9
    if dice.random() < 0.03:
        keep(reading)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("winners") / "configs.json"


@settings(max_examples=EACH, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None)
@given(seed=st.integers(0, 2**64))
def test_no_mutation_of_a_file_that_a_program_runs_by_does_it_harm(place, seed):
    """A damaged file of winners, read in place, gives valid results; the rest is ignored."""
    dice = random.Random(seed)
    place.write_bytes((damaged if dice.random() < 0.5 else altered)(WINNERS, dice))
    try:
        winners = WinnersFile(place)
    except BadImport as error:
        check_line(str(error).replace(str(place), ""))
        return
    question = Question(Problem("row_reduce", {"M": 1000, "N": 8192}, "float32"), "Ascend910B4")
    for result in [*winners.results(), *winners.answers(question)]:
        assert 0 < result.winner.time_us < math.inf
        assert result.winner.verified
    list(winners.shapes("row_reduce", "float32", "Ascend910B4"))
    winners.cores("Ascend910B4")


def check_line(text: str) -> None:
    assert text.isprintable(), text
    assert len(text) < 400, text


def keep(reading: ImportFile) -> None:
    """Check that everything accepted can be stored, looked up and exported again."""
    with open_store("sqlite://") as store:
        store.merge([(offer.scope, offer.trials) for offer in reading.offers])
        store.suggest(reading.suggestions)
        for scope in store.scopes():
            winner = store.result(scope).winner
            assert winner is None or (winner.verified and scope.kernel == "row_reduce")
        encode(export_native(store, store.scopes()))


@pytest.mark.parametrize("kind", READABLE)
def test_the_sound_files_are_taken_whole(kind):
    reading = checked_import(read(SOUND[kind], "N=8192.json", ABOUT, written=WRITTEN))
    assert reading.refusals == ()
    assert len(taken(reading)) + len(reading.suggestions) >= 2
    keep(reading)


@pytest.mark.parametrize("kind", READABLE)
def test_empty_huge_and_foreign_files_are_refused_in_one_line(kind, monkeypatch):
    monkeypatch.setattr(jsonfile, "LARGEST", 2**20)
    bomb = gzip.compress(b" " * 2**21, mtime=0)
    for data in (b"", b"\0" * 100, b"\x80\x05cos\nsystem\n.", b"[" * 100_000, b'{"a":' * 50_000, b"\x1f\x8b", bomb):
        with pytest.raises(BadImport) as caught:
            read(data, "x.json", ABOUT, written=WRITTEN, kind=kind)
        assert len(str(caught.value)) < 400
