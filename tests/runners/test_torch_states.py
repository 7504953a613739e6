"""What torch's optimisers and schedulers say of themselves, through a file and back."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from parllel.runs import load_state, save_state

OPTIMIZERS = {
    "adam": lambda parameters: torch.optim.Adam(parameters, betas=(0.8, 0.99), amsgrad=True),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, fused=False),
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, centered=True),
    "lbfgs": lambda parameters: torch.optim.LBFGS(parameters, max_iter=3),
    "adadelta": torch.optim.Adadelta,
}
INPUTS = torch.linspace(-1, 1, 12).reshape(6, 2)


def train(model, optimizer, steps):
    def closure():
        optimizer.zero_grad()
        loss = (model(INPUTS) - 1).square().mean()
        loss.backward()
        return loss

    for _ in range(steps):
        optimizer.step(closure)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_goes_on_from_its_state_dict(tmp_path, name):
    torch.manual_seed(3)
    model = nn.Linear(2, 1)
    optimizer = OPTIMIZERS[name](model.parameters())
    train(model, optimizer, 3)
    saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    save_state(tmp_path / "state.zip", saved)
    other = nn.Linear(2, 1)
    other_optimizer = OPTIMIZERS[name](other.parameters())
    loaded = load_state(tmp_path / "state.zip")
    other.load_state_dict(loaded["model"])
    other_optimizer.load_state_dict(loaded["optimizer"])
    train(model, optimizer, 3)
    train(other, other_optimizer, 3)
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_a_scheduler_goes_on_from_its_state_dict(tmp_path):
    def make():
        optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
        return optimizer, torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4], gamma=0.5)

    optimizer, scheduler = make()
    for _ in range(3):
        optimizer.step()
        scheduler.step()
    states = {"optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}
    save_state(tmp_path / "state.zip", states)
    other_optimizer, other = make()
    loaded = load_state(tmp_path / "state.zip")
    other_optimizer.load_state_dict(loaded["optimizer"])
    other.load_state_dict(loaded["scheduler"])
    for one, its in ((optimizer, scheduler), (other_optimizer, other)):
        one.step()
        its.step()
    assert other.get_last_lr() == scheduler.get_last_lr() == [0.25]


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6.0).reshape(2, 3).T,
        torch.tensor(2.5, dtype=torch.bfloat16),
        torch.tensor([[1.5, -2.0]], dtype=torch.bfloat16).T,
        torch.tensor([True, False]),
        torch.zeros(0, 3, dtype=torch.int64),
        torch.tensor([1 + 2j]).conj(),
        torch.tensor([0.5, 448.0]).to(torch.float8_e4m3fn),
        nn.Parameter(torch.ones(2)),
    ],
    ids=lambda tensor: f"{tensor.dtype}-{tuple(tensor.shape)}",
)
def test_a_tensor_comes_back_as_one(tmp_path, tensor):
    save_state(tmp_path / "state.zip", {"a": [tensor], "array": np.zeros(2)})
    before = copy.deepcopy(tensor.detach())
    (found,) = load_state(tmp_path / "state.zip")["a"]
    assert type(found) is torch.Tensor
    assert (found.dtype, found.shape) == (before.dtype, before.shape)
    assert found.tolist() == before.tolist()


def test_tensors_of_other_kinds_are_named(tmp_path):
    sparse = torch.eye(2).to_sparse()
    with pytest.raises(
        TypeError, match=r"state\.a\[0\]: expected a dense tensor, got torch.sparse"
    ):
        save_state(tmp_path / "state.zip", {"a": {0: sparse}})
    with pytest.raises(TypeError, match=r"state\.b: expected a dense tensor, got .* float32"):
        save_state(tmp_path / "state.zip", {"b": torch.zeros(1, device="meta")})
