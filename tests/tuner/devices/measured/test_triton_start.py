"""Work that compile processes do once, before they are forked."""

from triton.compiler.compiler import triton_key

from tilewise.tuner.devices.measured.triton_start import ENTRY, prepare
from tilewise.tuner.workers.worker import Worker


def test_triton_has_hashed_itself_and_keeps_the_key():
    triton_key.cache_clear()
    prepare()
    assert triton_key.cache_info().currsize == 1


def test_a_process_that_is_forked_afterwards_need_not_hash_again():
    worker = Worker("triton.compiler.compiler:triton_key", imports=(ENTRY,))
    try:
        assert worker.call(timeout=60) == triton_key()
    finally:
        worker.close()
