"""One decoder layer of a language model on tilewise's kernels: tune its launches once, then run it beside PyTorch.

    python examples/decoder_layer.py tune --db sqlite:///layer.db --timeout 20    # once, on an NVIDIA GPU
    python examples/decoder_layer.py run --db sqlite:///layer.db                  # any process after that

`run` looks the configs up and never tunes. It compares both layers with float32, then times them as they are, in a CUDA
graph, and under `torch.compile`. Sizes are those of a layer of Llama 3 8B; options change them.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields

import torch
from torch import Tensor
from torch.nn import functional

import tilewise

DTYPE = torch.bfloat16
EPS = 1e-6
ERROR = 1.5
"""How much further from float32 than PyTorch's layer ours may be: both round at other places."""


@dataclass(frozen=True, slots=True)
class Sizes:
    tokens: int = 2048
    hidden: int = 4096
    heads: int = 32
    kv_heads: int = 8
    head: int = 128
    inner: int = 14336

    def products(self) -> dict[str, tuple[int, int]]:
        """Return columns and terms of each product of the layer."""
        queries, keys = self.heads * self.head, self.kv_heads * self.head
        return {
            "q": (queries, self.hidden),
            "k": (keys, self.hidden),
            "v": (keys, self.hidden),
            "o": (self.hidden, queries),
            "gate_up": (2 * self.inner, self.hidden),
            "down": (self.hidden, self.inner),
        }

    def problems(self) -> Iterator[tuple[str, dict[str, int | bool]]]:
        """Yield kernel and shape of each launch, once."""
        m = self.tokens
        for n, k in dict.fromkeys(self.products().values()):
            yield "gemm", {"M": m, "N": n, "K": k, "column_major": True}
        for heads in dict.fromkeys((self.heads, self.kv_heads)):
            yield "rotary", {"M": m, "H": heads, "HALF": self.head // 2}
        attention = {"B": 1, "H": self.heads, "HKV": self.kv_heads, "Q": m, "K": m, "D": self.head}
        yield "flash_attention", {**attention, "causal": True}
        yield "rms_norm", {"M": m, "N": self.hidden}
        yield "add_rms_norm", {"M": m, "N": self.hidden}
        yield "silu_and_mul", {"M": m, "N": self.inner}


class Weights:
    """A layer's weights, those of products stored as [columns, terms], and the rotary tables [tokens, head / 2]."""

    def __init__(self, sizes: Sizes, device: str, dtype: torch.dtype = DTYPE) -> None:
        generator = torch.Generator(device).manual_seed(0)

        def normal(*shape: int, size: float = 1.0) -> Tensor:
            return (size * torch.randn(shape, generator=generator, device=device)).to(dtype)

        self.products = {name: normal(n, k, size=k**-0.5) for name, (n, k) in sizes.products().items()}
        self.norms = [1 + normal(sizes.hidden, size=0.1) for _ in range(2)]
        steps = torch.arange(sizes.head // 2, device=device) * (2 / sizes.head)
        angles = torch.arange(sizes.tokens, device=device)[:, None] * 10000.0**-steps
        self.cos, self.sin = angles.cos().to(dtype), angles.sin().to(dtype)


Layer = Callable[[Tensor], Tensor]


def eager_layer(sizes: Sizes, weights: Weights, dtype: torch.dtype | None = None) -> Layer:
    """Return the layer on PyTorch's own operations, computed in `dtype` (None: that of the weights)."""
    dtype = dtype or weights.cos.dtype
    w = {name: each.to(dtype) for name, each in weights.products.items()}
    norms, cos, sin = [each.to(dtype) for each in weights.norms], weights.cos.to(dtype), weights.sin.to(dtype)

    def rotated(x: Tensor) -> Tensor:
        low, high = x.chunk(2, -1)
        c, s = cos[:, None], sin[:, None]
        return torch.cat((low * c - high * s, high * c + low * s), -1)

    def layer(x: Tensor) -> Tensor:
        h = functional.rms_norm(x, (sizes.hidden,), norms[0], EPS)
        q, k, v = (functional.linear(h, w[name]).view(sizes.tokens, -1, sizes.head) for name in "qkv")
        heads = [each.movedim(0, 1)[None] for each in (rotated(q), rotated(k), v)]
        mixed = functional.scaled_dot_product_attention(*heads, is_causal=True, enable_gqa=True)
        x = x + functional.linear(mixed[0].movedim(0, 1).flatten(1), w["o"])
        h = functional.rms_norm(x, (sizes.hidden,), norms[1], EPS)
        gate, up = functional.linear(h, w["gate_up"]).chunk(2, -1)
        return x + functional.linear(functional.silu(gate) * up, w["down"])

    return layer


def tilewise_layer(sizes: Sizes, weights: Weights, db: str, device: str | None = None) -> Layer:
    """Return the layer on tilewise's kernels, with the configs that `db` has for `device` (None: the present one)."""

    def operator(name: str, **flags: bool) -> tilewise.Operator:
        return tilewise.Operator(name, db, flags=flags, device=device)

    product, attention = operator("gemm", column_major=True), operator("flash_attention", causal=True)
    norm, add_norm, rotary, gated = map(operator, ("rms_norm", "add_rms_norm", "rotary", "silu_and_mul"))

    def linear(x: Tensor, name: str) -> Tensor:
        weight = weights.products[name]
        out = x.new_empty(len(x), len(weight))
        product(x, weight.T, out)
        return out

    def rotated(x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        rotary(x, weights.cos, weights.sin, out)
        return out

    def layer(x: Tensor) -> Tensor:
        h = torch.empty_like(x)
        norm(x, weights.norms[0], h)
        q, k, v = (linear(h, name).view(sizes.tokens, -1, sizes.head) for name in "qkv")
        mixed = torch.empty_like(q)
        attention(rotated(q)[None], rotated(k)[None], v[None], mixed[None])
        after, h = torch.empty_like(x), torch.empty_like(x)
        add_norm(linear(mixed.flatten(1), "o"), x, weights.norms[1], after, h)
        inner = x.new_empty(sizes.tokens, sizes.inner)
        gated(linear(h, "gate_up"), inner)
        return after + linear(inner, "down")

    return layer


def tune(sizes: Sizes, db: str, timeout: float) -> None:
    """Tune every launch of the layer, at most `timeout` seconds each."""
    for kernel, shape in sizes.problems():
        result = tilewise.tune(kernel, shape, str(DTYPE).removeprefix("torch."), timeout=timeout, db=db)
        print(f"{kernel} {shape}: {result['time_us']:.1f} us", flush=True)


def distance(layer: Layer, exact: Tensor, x: Tensor) -> float:
    """Return how far a layer's output is from the float32 one, relative to its RMS."""
    return float((layer(x).float() - exact).square().mean().sqrt() / exact.square().mean().sqrt())


def captured(layer: Layer, x: Tensor) -> Callable[[], None]:
    """Return the replay of a CUDA graph of the layer."""
    layer(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        layer(x)
    return graph.replay


def microseconds(contenders: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the median time of each contender, run in turns."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds + 5):
        for name, run in contenders.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            run()
            end.record()
            end.synchronize()
            if number >= 5:
                times[name].append(1000 * begin.elapsed_time(end))
    return {name: round(statistics.median(each), 1) for name, each in times.items()}


def run(sizes: Sizes, db: str, rounds: int, file: str | None) -> None:
    """Compare both layers with float32 and time them; print JSON."""
    weights = Weights(sizes, "cuda")
    x = torch.randn(sizes.tokens, sizes.hidden, device="cuda").to(DTYPE)
    ours, eager = tilewise_layer(sizes, weights, db), eager_layer(sizes, weights)
    exact = eager_layer(sizes, weights, torch.float32)(x.float())
    errors = {"tilewise": distance(ours, exact, x), "eager": distance(eager, exact, x)}
    if errors["tilewise"] > ERROR * errors["eager"]:
        raise SystemExit(f"the layer is wrong: {errors} from float32, relative to the RMS")
    layers = {"tilewise": ours, "eager": eager}
    contenders: dict[str, Callable[[], object]] = {}
    for name, layer in layers.items():
        compiled = torch.compile(layer, fullgraph=True)
        compiled(x)
        contenders[name] = lambda layer=layer: layer(x)
        contenders[f"{name}, CUDA graph"] = captured(layer, x)
        contenders[f"{name}, torch.compile"] = lambda compiled=compiled: compiled(x)
        contenders[f"{name}, torch.compile, CUDA graph"] = captured(compiled, x)
    body = {
        "command": "python examples/decoder_layer.py run",
        "device": torch.cuda.get_device_name(),
        "versions": {"torch": torch.__version__, "tilewise": tilewise.__version__},
        "tokens": sizes.tokens,
        "errors": errors,
        "rounds": rounds,
        "microseconds": microseconds(contenders, rounds),
    }
    print(json.dumps(body, indent=1))
    if file:
        with open(file, "w") as out:
            json.dump(body, out, indent=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["tune", "run"])
    parser.add_argument("--db", default="sqlite:///layer.db")
    parser.add_argument("--timeout", type=float, default=30.0, help="tune: seconds per launch")
    parser.add_argument("--rounds", type=int, default=50, help="run: times of each contender")
    parser.add_argument("-o", "--output", help="run: also write the JSON there")
    for field in fields(Sizes):
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=int, default=field.default)
    given = vars(parser.parse_args())
    sizes = Sizes(**{field.name: given[field.name] for field in fields(Sizes)})
    if given["action"] == "tune":
        tune(sizes, given["db"], given["timeout"])
    else:
        run(sizes, given["db"], given["rounds"], given["output"])


if __name__ == "__main__":
    main()
