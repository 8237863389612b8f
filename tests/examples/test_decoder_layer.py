"""examples/decoder_layer.py: the layer's kernels under Triton's interpreter give what PyTorch gives."""

import os
import subprocess
import sys

import pytest
from places import ROOT

PROGRAM = """
import sys
import torch

sys.path.insert(0, sys.argv[1])
import decoder_layer

sizes = decoder_layer.Sizes(tokens=20, hidden=64, heads=4, kv_heads=2, head=16, inner=48)
weights = decoder_layer.Weights(sizes, "cpu", torch.float16)  # triton-ascend's interpreter has no bfloat16 products
ours = decoder_layer.tilewise_layer(sizes, weights, "missing.json", device="NVIDIA H200")
x = torch.randn(sizes.tokens, sizes.hidden).half()
exact = decoder_layer.eager_layer(sizes, weights, torch.float32)(x.float())
eager = decoder_layer.eager_layer(sizes, weights)
ours, eager = (decoder_layer.distance(layer, exact, x) for layer in (ours, eager))
assert 0 < ours < decoder_layer.ERROR * eager, (ours, eager)
print("done")
"""


@pytest.mark.full
def test_the_layer_on_tilewises_kernels_is_pytorchs(tmp_path):
    pytest.importorskip("triton")
    settings = {"TRITON_INTERPRET": "1", "TILEWISE_MISSES": "off"}
    command = [sys.executable, "-c", PROGRAM, str(ROOT / "examples")]
    ran = subprocess.run(command, cwd=tmp_path, env={**os.environ, **settings}, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "done\n"
