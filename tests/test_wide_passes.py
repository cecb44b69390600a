"""Products of wide passes: as float32 gives them, and torch's own of all else."""

import pytest
import torch

from traces.record.wide import wide

linear = torch.nn.functional.linear


def of(dtype, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)


@pytest.mark.parametrize("bias", [None, of(torch.float32, 24)])
@pytest.mark.parametrize("shape", [(16,), (5, 16), (2, 7, 16), (2, 0, 16)])
def test_products_are_those_of_float32(shape, bias):
    x, weight = of(torch.float32, *shape), of(torch.float32, 24, 16)
    with torch.inference_mode(), wide():
        found = linear(x, weight, bias)
    torch.testing.assert_close(found, linear(x, weight, bias))
    strided = of(torch.float32, *shape[:-1], 32)[..., ::2]
    with torch.inference_mode(), wide():
        torch.testing.assert_close(linear(strided, weight), strided @ weight.T)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_precisions_stay_torchs_own(dtype):
    x, weight = of(dtype, 40, 16), of(dtype, 24, 16)
    with wide():
        found = linear(x, weight)
    assert torch.equal(found, linear(x, weight))
