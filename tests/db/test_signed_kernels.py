"""Signed kernels in a database: kept by name as they were signed, replaced by a new version, and withdrawn."""

from __future__ import annotations

from dataclasses import replace

import pytest
from served import ServedKernels, ServedStore

from tilewise.db.signed_kernels import SignedKernel, SignedKernels
from tilewise.errors import NotFound

KEY = b"k" * 32
KERNEL = SignedKernel("mine", "mine.py", "SPEC", "SPEC = 'ü'\n")


@pytest.fixture
def kernels(store) -> SignedKernels:
    return ServedKernels(store) if isinstance(store, ServedStore) else SignedKernels(store.database)


def test_a_kernel_is_returned_as_it_was_signed_and_the_next_version_replaces_it(kernels):
    kernels.put(KERNEL)
    assert kernels.get("mine") == KERNEL
    newer = replace(KERNEL, text="SPEC = 2\n", signature="s")
    kernels.put(newer)
    kernels.put(replace(KERNEL, name="another"))
    assert kernels.get("mine") == newer
    assert kernels.digests() == {"another": replace(KERNEL, name="another").digest, "mine": newer.digest}


def test_a_kernel_that_is_not_there_is_not_found_and_not_withdrawn(kernels):
    kernels.put(KERNEL)
    kernels.remove("mine")
    for action in (kernels.get, kernels.remove):
        with pytest.raises(NotFound, match=r"no kernel 'mine' is signed; tilewise kernels sign FILE.py:SPEC signs one"):
            action("mine")


@pytest.mark.parametrize("changed", [{"name": "other"}, {"file": "o.py"}, {"spec": "OTHER"}, {"text": "SPEC = 3\n"}])
def test_a_signature_is_that_of_one_key_and_of_every_part(changed):
    signed = replace(KERNEL, signature=KERNEL.signature_by(KEY))
    assert signed.is_signed_by(KEY)
    assert not signed.is_signed_by(b"o" * 32)
    assert not replace(signed, **changed).is_signed_by(KEY)
    assert not replace(signed, signature="").is_signed_by(KEY)
    assert not replace(signed, signature="ü").is_signed_by(KEY)
