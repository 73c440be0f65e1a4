from __future__ import annotations

import pytest
import torch

from diffputer.nn.optimizers import AdamW, Muon, Optimizer, orthogonalise


def forget_gradients(optimizer: Optimizer) -> None:
    for group in optimizer.param_groups:
        for weight in group["params"]:
            weight.grad = None


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_steps_are_those_of_the_library_bit_for_bit(decay: float) -> None:
    generator = torch.Generator().manual_seed(0)
    start = [torch.randn(shape, generator=generator) for shape in ((3, 4), (7,), (2, 5, 5))]
    ours, theirs = ([w.clone().requires_grad_() for w in start] for _ in range(2))
    settings = {"lr": 0.01, "betas": (0.9, 0.99), "weight_decay": decay}
    mine = AdamW(ours, **settings)  # type: ignore[arg-type]
    library = torch.optim.AdamW(theirs, **settings, fused=True)  # type: ignore[arg-type]
    for step in range(30):
        for a, b in zip(ours, theirs, strict=True):
            a.grad = torch.randn(a.shape, generator=generator)
            b.grad = a.grad.clone()
        if step < 10:  # a weight that begins to learn later
            ours[1].grad = theirs[1].grad = None
        for group in (*mine.param_groups, *library.param_groups):
            group["lr"] = 0.01 * (1 - step / 40)
        mine.step()
        library.step()
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("shape", [(3, 16, 16), (2, 8, 24), (2, 24, 8)], ids=str)
def test_singular_values_become_alike(shape: tuple[int, ...]) -> None:
    m = torch.randn(shape, generator=torch.Generator().manual_seed(0)) * 100
    values = torch.linalg.svdvals(orthogonalise(m))
    assert float((values > 0.5).float().mean()) > 0.95
    assert float(values.max()) < 1.5


def test_singular_values_from_a_hundredth_of_the_largest_on_end_near_one_and_directions_stay() -> None:
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.linalg.qr(torch.randn(64, 64, generator=generator))[0] for _ in range(2))
    values = torch.logspace(-2, 0, 64)
    result = left.T @ orthogonalise(((left * values) @ right.T)[None])[0] @ right
    assert torch.allclose(result, torch.diag(result.diagonal()), atol=1e-4)
    assert ((result.diagonal() > 0.5) & (result.diagonal() < 1.5)).all()


def test_every_matrix_of_a_stack_is_on_its_own() -> None:
    m = torch.randn(3, 8, 8, generator=torch.Generator().manual_seed(0))
    m[1] *= 1e4
    alone = torch.cat([orthogonalise(part[None]) for part in m])
    assert torch.allclose(orthogonalise(m), alone, atol=1e-4)


def test_a_matrix_of_zeros_stays() -> None:
    assert (orthogonalise(torch.zeros(1, 4, 4)) == 0).all()


def test_it_finds_the_least_squares_solution_of_badly_scaled_inputs() -> None:
    # Inputs whose scales span a factor of thirty: every direction is learnt.
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(500, 6, generator=generator) * torch.logspace(-0.75, 0.75, 6)
    truth = torch.randn(6, 6, generator=generator)
    weight = torch.zeros(1, 6, 6, requires_grad=True)
    optimizer = Muon([weight], lr=0.3)
    for step in range(400):
        for group in optimizer.param_groups:
            group["lr"] = 0.3 * (1 - step / 400)
        loss = ((x @ weight[0] - x @ truth) ** 2).mean()
        forget_gradients(optimizer)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert torch.allclose(weight[0], truth, atol=0.05)


def test_matrices_of_one_shape_and_of_others_learn_side_by_side() -> None:
    generator = torch.Generator().manual_seed(0)
    wanted = [torch.randn(shape, generator=generator) for shape in ((2, 4, 4), (2, 4, 4), (2, 4, 7))]
    weights = [torch.zeros_like(w).requires_grad_() for w in wanted]
    optimizer = Muon(weights, lr=0.2)
    for step in range(300):
        for group in optimizer.param_groups:
            group["lr"] = 0.2 * (1 - step / 300)
        forget_gradients(optimizer)
        loss = sum(((a - b) ** 2).sum() for a, b in zip(weights, wanted, strict=True))
        loss.backward()  # type: ignore[union-attr]
        optimizer.step()
    for mine, other in zip(weights, wanted, strict=True):
        assert torch.allclose(mine, other, atol=0.05)
