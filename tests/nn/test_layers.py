from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from diffputer.nn import layers
from diffputer.nn.layers import DroppedSilu, MemberLinear, attend, normalise

gpu_with_triton = pytest.mark.skipif(
    not (torch.cuda.is_available() and layers.has_kernels()), reason="needs a GPU and Triton"
)


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("rows", [7, 4_096])
@pytest.mark.parametrize("plus", ["nothing", "rows", "bias"])
def test_the_gradient_of_a_layer_is_exact(plus: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # In float64 and against autograd's own; many rows are summed in parts.
    layer = MemberLinear(2, 3, 5, bias=plus == "bias").double()
    layer.reset(torch.Generator().manual_seed(0))
    x, more = randn(2, rows, 3).double().requires_grad_(), randn(2, rows, 5, seed=1).double().requires_grad_()
    slope = randn(2, rows, 5, seed=2).double()
    given = [x, *layer.parameters()] + ([more] if plus == "rows" else [])
    added = {"nothing": 0, "rows": more, "bias": layer.bias}[plus]
    plain = torch.einsum("eni,eio->eno", x, layer.weight) + added
    out = layer(x, plus=more if plus == "rows" else None)
    assert torch.allclose(out, plain)
    for mine, exact in zip(
        torch.autograd.grad(out, given, slope), torch.autograd.grad(plain, given, slope), strict=True
    ):
        assert torch.allclose(mine, exact)


def test_what_is_added_onto_is_written_over_where_no_gradient_needs_it() -> None:
    layer = MemberLinear(2, 3, 5)
    layer.reset(torch.Generator().manual_seed(0))
    x, before = randn(2, 7, 3), randn(2, 7, 5, seed=1)
    kept = before.clone()
    with_gradient = layer(x, onto=before)
    assert torch.equal(before, kept)
    with torch.no_grad():
        without = layer(x, onto=before)
    assert torch.equal(without, with_gradient)
    assert without.data_ptr() == before.data_ptr()


@gpu_with_triton
@pytest.mark.parametrize("backbone", ["mlp", "attention"])
def test_gradients_are_those_of_the_cpu(backbone: str) -> None:
    # Kernels write over what is added onto: a gradient that still needed it would be wrong.
    body: torch.nn.Module
    if backbone == "mlp":
        body = layers.ResidualMLP(2, 24, 64, 3, 0.0)
        given = [randn(2, 50, 24), randn(2, 50, 64, seed=1)]
    else:
        body = layers.ColumnAttention(2, 64, 3, 2, 0.0)
        given = [randn(2, 5, 50, 64)]
    for module in body.modules():
        if isinstance(module, MemberLinear):
            module.reset(torch.Generator().manual_seed(0))

    def gradients(device: str) -> list[torch.Tensor]:
        on = body.to(device)
        inputs = [x.to(device).requires_grad_() for x in given]
        out = on(*(x * 1 for x in inputs))
        found = torch.autograd.grad(out, [*inputs, *on.parameters()], randn(*out.shape, seed=3).to(device))
        return [g.cpu() for g in found]

    exact = gradients("cpu")
    for mine, theirs in zip(gradients("cuda"), exact, strict=True):
        assert float((mine - theirs).norm() / theirs.norm()) < 1e-3


@gpu_with_triton
@pytest.mark.parametrize(("width", "rows"), [(32, 5), (64, 1_000), (128, 777)])
def test_a_block_in_one_kernel_agrees_with_its_parts(width: int, rows: int) -> None:
    merge, inner, outer = (
        MemberLinear(2, *sizes) for sizes in ((width, width), (width, 2 * width), (2 * width, width))
    )
    for layer in (merge, inner, outer):
        layer.reset(torch.Generator().manual_seed(0))
    activation, h, more = DroppedSilu(0.1).eval(), randn(2, rows, width), randn(2, rows, width, seed=1)
    for plus in (False, True):
        of_cpu, of_gpu = [None, None] if not plus else [(more, merge), (more.cuda().bfloat16(), merge)]
        for layer in (merge, inner, outer):
            layer.cpu()
        exact = layers.apply_block(h.clone(), inner, activation, outer, of_cpu).detach()
        for layer in (merge, inner, outer):
            layer.cuda()
        with torch.no_grad():
            mine = layers.apply_block(h.cuda().bfloat16(), inner, activation, outer, of_gpu)
        assert float((mine.cpu() - exact).norm() / exact.norm()) < 1e-2


@gpu_with_triton
@pytest.mark.parametrize(("width", "rows"), [(32, 5), (64, 1_000), (128, 777)])
def test_a_projection_in_one_kernel_agrees_with_its_parts(width: int, rows: int) -> None:
    layer, activation, h = MemberLinear(2, width, 3 * width), DroppedSilu(0.1).eval(), randn(2, rows, width)
    layer.reset(torch.Generator().manual_seed(0))
    exact = layers.project(h, layer, activation)[0].detach()
    with torch.no_grad():
        mine, same = layers.project(h.cuda().bfloat16(), layer.cuda(), activation)
    assert torch.equal(same, h.cuda().bfloat16())
    assert float((mine.cpu() - exact).norm() / exact.norm()) < 1e-2


@gpu_with_triton
def test_columns_attend_alike_with_and_without_gradients() -> None:
    # Without gradients several layers are one kernel.
    body = layers.ColumnAttention(2, 64, 3, 2, 0.1).cuda().eval()
    for module in body.modules():
        if isinstance(module, MemberLinear):
            module.reset(torch.Generator().manual_seed(0))
    tokens = randn(2, 5, 50, 64).cuda()
    exact = body(tokens.clone()).detach()
    with torch.no_grad():
        mine = body(tokens.clone())
    assert float((mine - exact).norm() / exact.norm()) < 1e-3


def test_an_exact_product_has_exact_gradients() -> None:
    x, weight = randn(4, 30, 6).requires_grad_(), randn(4, 6, 3, seed=1).requires_grad_()
    slope = randn(4, 30, 3, seed=2)
    plain, mine = torch.bmm(x, weight), layers.exact_product(x, weight)
    assert torch.equal(plain, mine)
    for a, b in zip(
        torch.autograd.grad(mine, (x, weight), slope),
        torch.autograd.grad(plain, (x, weight), slope),
        strict=True,
    ):
        assert torch.allclose(a, b, atol=1e-6)
    coarse = layers.exact_product(x.bfloat16(), weight)
    assert coarse.dtype == torch.float32
    assert torch.equal(coarse, torch.bmm(x.bfloat16().float(), weight)), "answers are not rounded"


def test_attention_is_between_the_columns_of_a_row() -> None:
    # Written out: every row, member and head on its own.
    E, c, n, heads, d = 2, 5, 3, 2, 16
    qkv = randn(E, c, n, 3, heads, d)
    out = attend(qkv).view(E, c, n, heads, d)
    for e in range(E):
        for row in range(n):
            for head in range(heads):
                q, k, v = qkv[e, :, row, :, head].unbind(1)
                exact = torch.softmax(q @ k.T / d**0.5, dim=1) @ v
                assert torch.allclose(out[e, :, row, head], exact, atol=1e-5)


@gpu_with_triton
@pytest.mark.parametrize("c", [1, 9, 16, 17, 48, 100, 128])
def test_the_kernel_of_attention_agrees_with_torch(c: int) -> None:
    # bfloat16 keeps about three digits.
    qkv = randn(2, c, 50, 3, 4, 32).cuda().bfloat16().requires_grad_()
    slope = randn(2, c, 50, 128, seed=1).cuda().bfloat16()
    out = attend(qkv)
    (mine,) = torch.autograd.grad(out, qkv, slope)
    exact_in = qkv.detach().cpu().float().requires_grad_()
    exact = attend(exact_in)
    (theirs,) = torch.autograd.grad(exact, exact_in, slope.cpu().float())
    assert float((out.detach().cpu() - exact.detach()).norm() / exact.detach().norm()) < 1e-2
    assert float((mine.cpu() - theirs).norm() / theirs.norm().clamp_min(1e-6)) < 1e-2


@gpu_with_triton
@pytest.mark.parametrize("shape", [(777, 128), (3, 5, 96), (1, 512)], ids=str)
def test_the_kernel_of_normalisation_agrees_with_torch(shape: tuple[int, ...]) -> None:
    x = (randn(*shape) * 3 + 1).cuda().bfloat16().requires_grad_()
    slope, more = (randn(*shape, seed=seed).cuda().bfloat16() for seed in (1, 2))
    normal, same = normalise(x)
    (mine,) = torch.autograd.grad((normal, same), x, (slope, more))
    exact_in = x.detach().cpu().float().requires_grad_()
    exact = F.layer_norm(exact_in, shape[-1:])
    (theirs,) = torch.autograd.grad(exact, exact_in, slope.cpu().float())
    theirs += more.cpu().float()
    assert torch.equal(same, x)
    assert float((normal.detach().cpu() - exact.detach()).norm() / exact.detach().norm()) < 1e-2
    assert float((mine.cpu() - theirs).norm() / theirs.norm()) < 1e-2


def dropped_silu(share: float, device: str = "cpu") -> DroppedSilu:
    activation = DroppedSilu(share)
    activation.generator = torch.Generator(device).manual_seed(0)
    return activation


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=gpu_with_triton)])
def test_training_drops_a_share_and_its_gradient(device: str) -> None:
    # A number of exactly zero would look dropped; 50,001 numbers do not fill the last program of the kernel.
    x = (randn(50_001).abs() + 0.1).to(device).requires_grad_()
    activation = dropped_silu(0.1, device)
    y = activation(x)
    (slope,) = torch.autograd.grad(y.sum(), x)
    kept = y != 0
    assert 0.895 < float(kept.float().mean()) < 0.905
    exact_in = x.detach().requires_grad_()
    exact = F.silu(exact_in) * kept
    assert torch.allclose(y, exact, atol=1e-6)
    assert torch.allclose(slope, torch.autograd.grad(exact.sum(), exact_in)[0], atol=1e-6)
    again = activation(x) != 0
    assert 0.8 < float((again == kept).float().mean()) < 0.84, "another step drops others"
    assert torch.equal(dropped_silu(0.1, device)(x), y), "the same seed drops the same"


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=gpu_with_triton)])
@pytest.mark.parametrize("share", [0.0, 0.25])
def test_after_training_what_was_dropped_is_a_scale(share: float, device: str) -> None:
    x = randn(3, 1_001).to(device)
    assert torch.allclose(dropped_silu(share, device).eval()(x), F.silu(x) * (1 - share), atol=1e-6)
