"""Choices that processes share: first come, first served, by torchrun's store or by a file."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from datetime import timedelta
from types import SimpleNamespace

import pytest
from places import HELPERS

from tilewise.db.records import Problem, Question
from tilewise.tuner.runtime import shared_choices
from tilewise.tuner.runtime.shared_choices import SharedChoice, SharedChoices
from tilewise.tuner.workers.file_lock import try_lock

QUESTION = Question(Problem("softmax", {"M": 64, "N": 512}, "float32", {"causal": True}), "Ascend910B4")


def choice(block, source="abc", question=QUESTION):
    return SharedChoice(question, source, {"BLOCK": block, "multibuffer": True}, "exact", f"{block} is best")


@pytest.fixture
def store():
    """A job of eight ranks: the store that torchrun would keep, and its environment."""
    distributed = pytest.importorskip("torch.distributed")
    opened = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=9))
    return opened, {"WORLD_SIZE": "8", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(opened.port)}


@pytest.fixture
def file(tmp_path):
    return tmp_path / "choices.jsonl"


def test_a_choice_is_read_as_it_was_written():
    assert SharedChoice.read(choice(8).text()) == choice(8)


def test_the_first_rank_chooses_for_all(store):
    first, second = (SharedChoices(None, store[1]) for _ in range(2))
    assert first.are_shared and second.agreed(choice(8)) == choice(8)
    assert first.agreed(choice(16)) == choice(8) and second.agreed(choice(32)) == choice(8)
    assert first.agreed(choice(16, "other source")) == choice(16, "other source")


def test_a_process_of_its_own_chooses_for_itself(file):
    for environment in ({}, {"WORLD_SIZE": "1", "MASTER_ADDR": "a", "MASTER_PORT": "1"}, {"WORLD_SIZE": "8"}):
        alone = SharedChoices(None, environment)
        assert not alone.are_shared and alone.agreed(choice(8)) == choice(8)
        assert alone.pinned(QUESTION, "abc") is None


def test_a_store_that_does_not_answer_is_waited_for_once(caplog, monkeypatch):
    pytest.importorskip("torch.distributed")
    monkeypatch.setattr(shared_choices, "WAIT_SECONDS", 0.3)
    absent = SharedChoices(None, {"WORLD_SIZE": "8", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "9"})
    began = time.monotonic()
    assert absent.agreed(choice(8)) == choice(8)
    assert time.monotonic() - began < 3
    assert not absent.are_shared and absent.agreed(choice(16)) == choice(16)
    assert len(caplog.messages) == 1 and "ranks may choose different configs" in caplog.messages[0]


def test_garbage_in_the_store_is_not_launched(store, caplog):
    store[0].set(f"tilewise/{choice(8).key}", "{}")
    assert SharedChoices(None, store[1]).agreed(choice(8)) == choice(8)
    assert "torchrun's store does not answer" in caplog.text


def test_a_choice_for_another_problem_in_the_store_is_not_launched(store, caplog):
    store[0].set(f"tilewise/{choice(8).key}", choice(16, "other source").text())
    assert SharedChoices(None, store[1]).agreed(choice(8)) == choice(8)
    assert "it holds a choice for another problem" in caplog.text


def test_processes_agree_by_a_file_which_pins_their_choices(file):
    first, second = SharedChoices(file, {}), SharedChoices(file, {})
    assert second.pinned(QUESTION, "abc") is None
    assert first.agreed(choice(8)) == choice(8) and second.agreed(choice(16)) == choice(8)
    later = SharedChoices(file, {})
    assert later.pinned(QUESTION, "abc") == choice(8)
    assert len(file.read_text().splitlines()) == 1 and json.loads(file.read_text())["config"]["BLOCK"] == 8


def test_a_pinned_choice_of_another_source_is_not_used(file, caplog):
    SharedChoices(file, {}).agreed(choice(8))
    moved = SharedChoices(file, {})
    assert moved.pinned(QUESTION, "new") is None and "another version of the kernel's source" in caplog.text
    assert moved.agreed(choice(16, "new")) == choice(16, "new")
    assert SharedChoices(file, {}).pinned(QUESTION, "new") == choice(16, "new")


def test_a_line_that_a_crash_cut_short_is_skipped(file):
    file.write_text(choice(8).text()[:40])
    shared = SharedChoices(file, {})
    assert shared.pinned(QUESTION, "abc") is None
    assert shared.agreed(choice(16)) == choice(16)
    assert SharedChoices(file, {}).pinned(QUESTION, "abc") == choice(16)


def test_a_file_that_stays_locked_is_given_up(file, monkeypatch, caplog):
    monkeypatch.setattr(shared_choices, "WAIT_SECONDS", 0.1)
    lock = try_lock(file.with_name("choices.jsonl.lock"), "test")
    shared = SharedChoices(file, {})
    assert shared.agreed(choice(8)) == choice(8) and shared.agreed(choice(16)) == choice(16)
    assert len(caplog.messages) == 1 and "is locked for more than 0.1 s by another process" in caplog.messages[0]
    lock.release()


def test_the_lock_of_a_file_is_given_back_after_each_choice(file, monkeypatch):
    held = []
    lock = SimpleNamespace(release=lambda: held.append("released"))
    monkeypatch.setattr(shared_choices, "try_lock", lambda file, purpose, *, remedy: held.append(file.name) or lock)
    shared = SharedChoices(file, {})
    assert shared.agreed(choice(8)) == shared.agreed(choice(16)) == choice(8)
    assert held == ["choices.jsonl.lock", "released"] * 2


def test_a_file_that_cannot_be_made_is_told_once(tmp_path, caplog):
    (tmp_path / "taken").write_text("")
    shared = SharedChoices(tmp_path / "taken" / "choices.jsonl", {})
    assert shared.agreed(choice(8)) == choice(8) and shared.agreed(choice(16)) == choice(16)
    assert len(caplog.messages) == 1


def test_a_file_that_cannot_be_read_or_written_is_told_once_with_the_reason(file, caplog):
    file.mkdir()
    shared = SharedChoices(file, {})
    assert [shared.pinned(QUESTION, "abc") for _ in range(2)] == [None, None]
    file.rmdir()
    file.symlink_to(file.parent / "absent" / "choices.jsonl")
    shared = SharedChoices(file, {})
    assert shared.pinned(QUESTION, "abc") is None
    assert [shared.agreed(choice(block)) for block in (8, 16)] == [choice(8), choice(16)]
    assert caplog.messages == [
        f"choices are not shared: cannot read {file}: Is a directory; check its permissions",
        f"choices are not shared: cannot write {file}: No such file or directory; check its permissions",
    ]


def test_many_threads_agree_by_one_file(file):
    found = []
    all_at_once = threading.Barrier(8)

    def ask(block):
        all_at_once.wait()
        found.append(SharedChoices(file, {}).agreed(choice(block)))

    threads = [threading.Thread(target=ask, args=(block,)) for block in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(SharedChoice.text, found))) == 1 and len(file.read_text().splitlines()) == 1


@pytest.mark.full
@pytest.mark.parametrize("pinned", [False, True])
def test_eight_ranks_on_two_nodes_launch_one_config(tmp_path, pinned):
    """Each rank has results of its own, and would launch another config than the others. The nodes are processes."""
    pytest.importorskip("torch.distributed")
    common = ["--nnodes=2", "--nproc-per-node=4", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:29671"]
    words = [str(HELPERS / "programs" / "ranks.py"), str(tmp_path), "pinned" if pinned else "voted"]
    command = [sys.executable, "-m", "torch.distributed.run", *common, f"--rdzv-id={tmp_path.name}", *words]
    nodes = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(2)]
    outputs = [node.communicate(timeout=240)[0] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], outputs
    told = [json.loads(path.read_text()) for path in tmp_path.glob("rank-*.json")]
    assert sorted(one["rank"] for one in told) == list(range(8))
    assert len({json.dumps(one["own"]) for one in told}) == 8
    assert len({json.dumps(one["launched"]) for one in told}) == 1
    assert max(one["seconds"] for one in told) < shared_choices.WAIT_SECONDS
    if pinned:
        assert len((tmp_path / "choices.jsonl").read_text().splitlines()) == 1
