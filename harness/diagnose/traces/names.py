"""What a kernel or an operation is, by its name, as torch 2.x and the vendors' libraries give it."""

import re
from functools import lru_cache

_remembered = lru_cache(maxsize=1 << 14)
"""A trace repeats its names a thousand times; looking one up is ten times faster than a regex."""

_MATRIX_KERNEL = re.compile(
    r"gemm|gemv|gemvx|cutlass|nvjet|wgmma|xmma|splitk|^Cijk_|matmul|triton_tem_|_mm_kernel|grouped_mm"
    r"|flash|fmha|attention|attn_|sdpa"
    r"|conv(?!ert)|wgrad|dgrad|winograd|cudnn_",
    re.IGNORECASE,
)
"""cuBLAS (gemm, nvjet on Hopper), CUTLASS, Tensile (Cijk), fused attention, cuDNN's convolutions."""

_POINTWISE = re.compile(r"^triton_(poi|red|per|for)_|softmax|elementwise|layer_?norm|batch_norm")
"""Inductor names its pointwise kernels after what they fuse, matrix products included."""

_MATRIX_OPS = frozenset(
    f"aten::{name}"
    for name in (
        *("mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "_scaled_mm", "_grouped_mm"),
        *("convolution", "_convolution", "convolution_backward", "mkldnn_convolution", "thnn_conv2d"),
        *("_slow_conv2d_forward", "_slow_conv2d_backward", "mkldnn_linear", "mkldnn_linear_backward"),
        *("_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_backward"),
        *("_scaled_dot_product_flash_attention_for_cpu",),
        *("_scaled_dot_product_flash_attention_for_cpu_backward", "_scaled_dot_product_efficient_attention"),
        *("_scaled_dot_product_efficient_attention_backward", "_scaled_dot_product_cudnn_attention"),
        *("lstm", "gru", "_thnn_fused_lstm_cell", "mkldnn_rnn_layer"),
    )
)

_SYMMETRIC = re.compile(
    r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|cross_device_reduce|nvshmem|multimem|deep_ep",
    re.IGNORECASE,
)
_LOGGING = re.compile(r"logging/__init__\.py|logging/handlers\.py|built-in (method|function) (write|print)\b")
_RECOMPUTE = re.compile(r"recompute|rematerial|activation[ _-]?checkpoint", re.IGNORECASE)

_ALLOCATIONS = ("cudaMalloc", "cudaFree", "hipMalloc", "hipFree", "cuMemCreate", "cuMemMap", "cuMemUnmap")
_LAUNCHES = ("Launch", "Memcpy", "Memset")

EVALUATION = "autograd::engine::evaluate_function: "
CHECKPOINTED = f"{EVALUATION}CheckpointFunctionBackward"


def is_matrix_kernel(name: str) -> bool:
    """Matrix products, attention and convolutions, on the device."""
    return bool(_MATRIX_KERNEL.search(name)) and not _POINTWISE.search(name)


def is_matrix_op(name: str) -> bool:
    """The same, on the CPU."""
    return name in _MATRIX_OPS


@_remembered
def is_collective_kernel(name: str) -> bool:
    """NCCL's and RCCL's kernels, sends and receives included, and those of symmetric memory: all wait."""
    return name.startswith(("nccl", "rccl", "msccl")) or bool(_SYMMETRIC.search(name))


def is_p2p(name: str, collective: str) -> bool:
    """Whether a communication kernel or annotation sends or receives.

    An all-to-all runs in the same kernel: where torch wrote the collective's name, that decides.
    """
    if collective:
        plain = collective.lower()
        if plain.startswith(
            ("all", "_all", "reduce", "_reduce", "broadcast", "gather", "scatter", "barrier")
        ):
            return False
        if plain in ("send", "recv", "isend", "irecv") or "send" in plain or "recv" in plain:
            return True
    return "SendRecv" in name or name.rpartition(":")[2] in ("send", "recv", "recv_any_source_")


@_remembered
def is_loader(name: str) -> bool:
    """The annotation that torch puts around a DataLoader's `__next__`."""
    return name.startswith("enumerate(DataLoader)")


@_remembered
def names_recompute(name: str) -> bool:
    """An annotation that somebody put around recomputed activations."""
    return bool(_RECOMPUTE.search(name))


@_remembered
def is_logging(name: str) -> bool:
    """A Python frame that writes: the logging module, print, a stream's write."""
    return bool(_LOGGING.search(name))


@_remembered
def is_allocation(name: str) -> bool:
    """A runtime call that asks the device for memory or gives it back: each waits for the device."""
    return name.startswith(_ALLOCATIONS) and "Async" not in name and "Host" not in name


@_remembered
def is_launch(name: str) -> bool:
    """A runtime call that starts something on the device."""
    return any(word in name for word in _LAUNCHES)
