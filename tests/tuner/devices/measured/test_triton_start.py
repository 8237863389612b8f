"""Work that compile processes do once, before they are forked."""

import triton.compiler.compiler
import triton.runtime.cache

from tilewise.tuner.devices.measured.triton_start import ENTRY, prepare
from tilewise.tuner.workers.worker import Worker

MODULES = (triton.runtime.cache, triton.compiler.compiler)
[DEFINING] = [module for module in MODULES if hasattr(module, "triton_key")]  # the first since Triton 3.5


def test_triton_has_hashed_itself_and_keeps_the_key():
    DEFINING.triton_key.cache_clear()
    prepare()
    assert DEFINING.triton_key.cache_info().currsize == 1


def test_a_process_that_is_forked_afterwards_need_not_hash_again():
    worker = Worker(f"{DEFINING.__name__}:triton_key", imports=(ENTRY,))
    try:
        assert worker.call(timeout=60) == DEFINING.triton_key()
    finally:
        worker.close()
