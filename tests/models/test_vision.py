"""VisionTransformer against transformers' ViT, and patches against a convolution."""

import re

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import ViTConfig, ViTForImageClassification

import tracer
from tracer.models import VisionTransformer

SIZES = {"primes": (2, 3, 21, 11, 13, 3, 2, 6, 6), "small": (1, 5, 35, 7, 17, 1, 3, 9, 9),
         "equal": (4, 4, 16, 16, 16, 4, 4, 16, 16)}  # fmt: skip
"""L, H, C, V, M, R, P, Y, X"""
all_sizes = pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)


def made(sizes=SIZES["primes"], **choices) -> VisionTransformer:
    L, H, C, V, M, R, P, Y, X = sizes
    torch.manual_seed(0)
    choices = {"n_class": V, "n_layer": L, "n_head": H, "n_embd": C, "d_mlp": M, "channels": R, **choices}
    model = VisionTransformer((Y, X), P, **choices).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.3 * torch.randn_like(p))
    return model


def pictures(sizes, B: int = 2) -> Tensor:
    return torch.randn(B, sizes[5], *sizes[7:], generator=torch.Generator().manual_seed(1))


# ------------------------------------------------------------------ transformers' ViT

PARTS = {
    "attn.c_q": "attention.q_proj", "attn.c_k": "attention.k_proj", "attn.c_v": "attention.v_proj",
    "attn.c_proj": "attention.o_proj", "ln_1": "layernorm_before", "ln_2": "layernorm_after",
    "mlp.c_fc": "mlp.fc1", "mlp.c_proj": "mlp.fc2",
}  # fmt: skip


def vit(sizes) -> ViTForImageClassification:
    L, H, C, V, M, R, P, Y, _ = sizes
    torch.manual_seed(0)
    config = ViTConfig(
        hidden_size=C, num_hidden_layers=L, num_attention_heads=H, intermediate_size=M, image_size=Y, patch_size=P,
        num_channels=R, num_labels=V, attn_implementation="eager",
    )  # fmt: skip
    theirs = ViTForImageClassification(config).eval()
    with torch.no_grad():
        for p in theirs.parameters():
            p.add_(0.3 * torch.randn_like(p))
    return theirs


def from_vit(theirs: ViTForImageClassification, sizes, **choices) -> VisionTransformer:
    model = made(sizes, **{"pool": "class", **choices})
    state = {name.removeprefix("vit."): p for name, p in theirs.state_dict().items()}
    ours = {
        "projection.weight": state["embeddings.patch_embeddings.projection.weight"].flatten(1),  # [C, R, P, P]
        "projection.bias": state["embeddings.patch_embeddings.projection.bias"],
        "cls": state["embeddings.cls_token"], "wpe.weight": state["embeddings.position_embeddings"][0],
    }  # fmt: skip
    for kind in ("weight", "bias"):
        ours |= {f"ln_f.{kind}": state[f"layernorm.{kind}"], f"head.{kind}": state[f"classifier.{kind}"]}
        for layer in range(sizes[0]):
            ours |= {f"h.{layer}.{our}.{kind}": state[f"layers.{layer}.{their}.{kind}"] for our, their in PARTS.items()}
    model.load_state_dict(ours)
    return model


@torch.no_grad()
def gap(theirs: ViTForImageClassification, ours: VisionTransformer, images: Tensor) -> float:
    return (ours(images)[0] - theirs(images).logits).abs().max().item()


@all_sizes
def test_vit(sizes):
    theirs = vit(sizes)
    ours = from_vit(theirs, sizes)
    assert gap(theirs, ours, pictures(sizes)) <= 1e-5
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())


def test_other_choices_are_not_vit():
    sizes = SIZES["primes"]
    theirs, images = vit(sizes), pictures(sizes)
    assert gap(theirs, from_vit(theirs, sizes, activation="gelu_tanh"), images) > 1e-5
    assert gap(theirs, from_vit(theirs, sizes, eps=1e-2), images) > 1e-5
    ours = from_vit(theirs, sizes)
    ours.pool = "mean"
    assert gap(theirs, ours, images) > 1e-4
    assert (
        from_vit(theirs, sizes)(images.transpose(2, 3))[0] - theirs(images).logits
    ).abs().max() > 1e-4  # rows and columns


def test_parameters_of_vit_base():
    with torch.device("meta"):
        model = VisionTransformer(
            (224, 224), 16, n_class=1000, n_layer=12, n_head=12, n_embd=768, channels=3, pool="class"
        )
    assert sum(p.numel() for p in model.parameters()) == 86567656  # Dosovitskiy et al. 2021, table 1: 86 million


# ------------------------------------------------------------------ patches


@all_sizes
def test_the_projection_of_patches_is_a_convolution_of_stride_p(sizes):
    model, images = made(sizes), pictures(sizes)
    projected = model.projection(model.patches(images))
    assert (model.convolve(images) - projected).abs().max() <= 1e-5
    kernel = model.projection.weight.view(-1, sizes[5], sizes[6], sizes[6])
    turned = F.conv2d(images, kernel.transpose(2, 3), model.projection.bias, stride=sizes[6])
    assert (turned.flatten(2).transpose(1, 2) - projected).abs().max() > 1e-3


def test_patches_are_read_row_by_row():
    model = VisionTransformer((4, 6), 2, n_class=2, n_layer=1, n_head=1, n_embd=4)
    image = torch.arange(24.0).view(1, 1, 4, 6)
    assert model.patches(image)[0].tolist() == [
        [0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 10, 11], [12, 13, 18, 19], [14, 15, 20, 21], [16, 17, 22, 23]
    ]  # fmt: skip


def moved(images: Tensor, P: int) -> Tensor:
    """The same patches in another order: the left and right half of the image swapped by whole patches."""
    return images.roll(P, dims=3)


def test_without_positions_the_patches_are_a_set():
    sizes = SIZES["primes"]
    images = pictures(sizes)
    for pool in ("mean", "class"):
        free, placed = made(sizes, pool=pool, positions=False), made(sizes, pool=pool)
        assert torch.allclose(free(moved(images, 2))[0], free(images)[0], atol=1e-5)
        assert not torch.allclose(placed(moved(images, 2))[0], placed(images)[0], atol=1e-3)


# ------------------------------------------------------------------ trace, errors


@all_sizes
@pytest.mark.parametrize("pool", ["mean", "class"])
@pytest.mark.parametrize("positions", [True, False])
def test_trace_names_every_axis(sizes, pool, positions):
    B = 4 if sizes == SIZES["equal"] else 2
    model = made(sizes, pool=pool, positions=positions)
    t = tracer.trace(model, pictures(sizes, B), torch.zeros(B, dtype=torch.long))
    assert "?" not in str([info.label for op in t for info in (*op.inputs, *op.outputs)])
    assert (t.warnings, t.unnamed) == ((), ())
    assert [op.outputs[0].label for op in t[1:5]] == [
        "[B, R, Y/P, P, X/P, P]",
        "[B, Y/P, X/P, R, P, P]",
        "[B, Y/P, X/P, (R P P)]",
        "[B, N, (R P P)]",
    ]
    N = "1+N" if pool == "class" else "N"
    assert t.find(name="softmax")[0].outputs[0].label == f"[B, H, {N}, {N}]"


@pytest.mark.parametrize(("P", "Y", "X"), [(4, 4, 4), (2, 2, 8), (2, 8, 2), (1, 3, 5)])
@pytest.mark.parametrize("pool", ["mean", "class"])
def test_patches_as_large_as_the_image_or_a_pixel_are_no_mistake(P, Y, X, pool):
    """With sizes of 1 an axis may be `?`; nothing is warned of, and no name is another one's."""
    model = made((1, 3, 21, 11, 13, 3, P, Y, X), pool=pool)
    t = tracer.trace(model, torch.zeros(2, 3, Y, X))
    assert (t.warnings, t.unnamed) == ((), ())
    assert t[-1].outputs[0].label == "[B, V]"


def test_an_image_cut_the_wrong_way_is_not_named_as_patches():
    model, images = made(), pictures(SIZES["primes"])
    with tracer.record(axes={"images": "B R Y X"}, sizes=model.sizes) as t:
        t.name(images, "B R Y X")
        wrong = images.reshape(2, 9, 12)  # as many numbers, but runs of a row instead of patches
    assert wrong.shape == (2, 9, 12)
    assert t[0].outputs[0].axes[1] != "N"


@pytest.mark.parametrize(
    ("images", "targets", "error", "words"),
    [
        (torch.zeros(2, 1, 6, 6), None, ValueError, "images are [2, 1, 6, 6]"),
        (torch.zeros(3, 6, 6), None, ValueError, "[B, R, Y, X]"),
        (torch.zeros(2, 3, 6, 6).byte(), None, TypeError, "images.float() / 255"),
        (torch.zeros(2, 3, 6, 6), torch.zeros(3).long(), ValueError, "B=2 images"),
        (torch.zeros(2, 3, 6, 6), torch.zeros(2), TypeError, "targets.long()"),
        (torch.zeros(2, 3, 6, 6), torch.tensor([0, 11]), IndexError, "is 11"),
    ],
)
def test_bad_input_gets_one_clear_error(images, targets, error, words):
    with pytest.raises(error, match=re.escape(words)):
        made()(images, targets)


def test_patches_must_fill_the_image():
    with pytest.raises(ValueError, match="patch=4 does not divide an image of 8 x 6"):
        VisionTransformer((8, 6), 4, n_class=2, n_layer=1, n_head=1, n_embd=4)
