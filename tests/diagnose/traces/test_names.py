"""Kernels, operations and frames by their names."""

import pytest

from harness.diagnose.traces.names import (
    is_allocation,
    is_collective_kernel,
    is_logging,
    is_matrix_kernel,
    is_p2p,
    names_recompute,
)


@pytest.mark.parametrize(
    "name",
    [
        "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_kernel",
        "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_NNT",
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8>",
        "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 64, 64, 4> >",
        "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_3_64x64x128_4x1x1",
        "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel)",
        "void splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>",
        "void implicit_convolve_sgemm<float, float, 1024, 5, 5>",
        "Cijk_Ailk_Bljk_BBS_BH_MT128x128x32_MI32x32x8x1",
        "triton_tem_fused_mm_12",
        "void gemmSN_TN_kernel<float, 128, 16, 2, 4, 4, 4, true>",
    ],
)
def test_matrix_kernels(name: str) -> None:
    """Products, attention and convolutions of all the vendors' libraries are matrix work."""
    assert is_matrix_kernel(name)


@pytest.mark.parametrize(
    "name",
    [
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >",
        "triton_poi_fused_addmm_relu_3",
        "triton_red_fused__scaled_dot_product_flash_attention_7",
        "triton_per_fused_convert_element_type_native_layer_norm_2",
        "void at::native::(anonymous namespace)::softmax_warp_forward<float, float, float, 8, false>",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >",
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor>",
        "Memcpy HtoD (Pageable -> Device)",
        "Memset (Device)",
    ],
)
def test_other_kernels(name: str) -> None:
    """Elementwise work is none, though compilers name it after the products that it follows."""
    assert not is_matrix_kernel(name)


@pytest.mark.parametrize(
    ("name", "collective", "p2p"),
    [
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "send", True),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "", True),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "all_to_allv", False),
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "allreduce", False),
        ("gloo:send", "", True),
        ("gloo:recv", "", True),
        ("gloo:all_reduce", "", False),
        ("c10d::recv_any_source_", "", True),
    ],
)
def test_sends_and_all_to_alls_share_a_kernel(name: str, collective: str, p2p: bool) -> None:
    """The collective's name, where it is written, tells an all-to-all from a pipeline's send."""
    assert is_p2p(name, collective) is p2p


def test_kernels_that_wait_for_peers_are_communication() -> None:
    """Symmetric memory and one-shot reductions wait as NCCL does; a reduction on one device does not."""
    assert is_collective_kernel("ncclDevKernel_AllGather_RING_LL")
    assert is_collective_kernel("two_shot_all_reduce_kernel_inplace<c10::BFloat16>")
    assert is_collective_kernel("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>")
    assert not is_collective_kernel("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >")


def test_only_waiting_allocations_count() -> None:
    """Stream-ordered allocation and pinned host memory do not stop the device."""
    assert is_allocation("cudaMalloc")
    assert is_allocation("cudaFree")
    assert not is_allocation("cudaMallocAsync")
    assert not is_allocation("cudaFreeHost")


def test_annotations_and_frames() -> None:
    """A saved checkpoint is no recomputed activation; writing frames are told from others."""
    assert names_recompute("activation_checkpoint: layer 3")
    assert not names_recompute("save_checkpoint")
    assert is_logging("logging/__init__.py(1477): debug")
    assert is_logging("<built-in method write of _io.TextIOWrapper object at 0x7f>")
    assert not is_logging("torch/nn/modules/module.py(1): write_state")
