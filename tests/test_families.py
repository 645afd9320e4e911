"""Which kernels are communication, and which only look like it."""

import pytest

from traceq.model.collectives import Op
from traceq.model.families import classify

COMMUNICATION = [
    ("ncclKernel_AllReduce_TREE_LL_Sum___nv_bfloat16", "nccl", Op.ALL_REDUCE),
    ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", "nccl", Op.SEND_RECV),
    ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", "nccl", Op.ALL_REDUCE),
    ("ncclSendRecvKernel_copy_i8(ncclColl)", "nccl", Op.SEND_RECV),
    ("ncclAllToAllKernel_copy_i8(ncclColl)", "nccl", Op.ALL_TO_ALL),
    ("void (anonymous namespace)::two_shot_all_reduce_kernel<2>(T*)", "symm_mem", Op.ALL_REDUCE),
    ("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", "nccl", Op.REDUCE_SCATTER),
    ("ncclDevKernel_Reduce_Sum_f32_RING_LL", "nccl", Op.REDUCE),
    ("ncclDevKernel_AllGatherV_RING_LL", "nccl", Op.ALL_GATHER),
    ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", "nccl", Op.UNKNOWN),
    ("ncclSymDevKernel_AllGather_LL(ncclSymDevArgs)", "nccl", Op.ALL_GATHER),
    ("ncclSymkDevKernel_AllReduce_RSxLD_AGxST_sum_bf16", "nccl", Op.ALL_REDUCE),
    ("NCCLDEVKERNEL_BROADCAST_RING_LL", "nccl", Op.BROADCAST),
    ("void oneRankReduce<FuncSum<float>>(void*)", "nccl", Op.REDUCE),
    ("mscclKernel_Sum_float_Simple_2", "msccl", Op.UNKNOWN),
    ("mscclpp::allreduce_kernel<float>", "msccl", Op.ALL_REDUCE),
    ("nvshmemi_alltoall_on_stream_kernel", "nvshmem", Op.ALL_TO_ALL),
    ("void deep_ep::internode_ll::dispatch<true, 3>(void*)", "deep_ep", Op.ALL_TO_ALL),
    ("void deep_ep::intranode::combine<__nv_bfloat16>(int4*)", "deep_ep", Op.ALL_TO_ALL),
    ("void multimem_all_reduce_kernel<c10::BFloat16, 16>(float*)", "symm_mem", Op.ALL_REDUCE),
    ("void two_shot_all_reduce_kernel<c10::BFloat16>(T*)", "symm_mem", Op.ALL_REDUCE),
    ("void vllm::cross_device_reduce_1stage<half, 8>(int)", "custom_all_reduce", Op.ALL_REDUCE),
    (
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<1>()",
        "tensorrt_llm",
        Op.ALL_REDUCE,
    ),
]

LOOK_ALIKES = [
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(T3)",
    "void at::native::vectorized_gather_kernel<16, long>(char*)",
    "void at::native::_scatter_gather_elementwise_kernel<128, 8>(int)",
    "void at::native::(anonymous namespace)::indexSelectLargeIndex<float>(T)",
    "void cub::DeviceReduceSingleTileKernel<Policy800, float*>(T)",
    "void splitKreduce_kernel<32, 16, int, float>(T)",
    "broadcast_add_kernel",
    "send_message_to_self",
    "allreduce_hook_dummy_math",
    "void sorting::all_to_all_transpose(float*)",
    "my_ncclDevKernel_copy",
    "nccl_benchmark_fill",
    "void fused_gemm<float, nvshmem_team_t>(float*)",
    "void foo(int, nvshmem_team_t)",
    "void k<int, userbuffers_x>()",
    "void flash::foo<deep_ep::X>(int)",
    "memcpy PtoP",
    "",
]


@pytest.mark.parametrize(("name", "family", "op"), COMMUNICATION)
def test_communication_kernels_are_known_by_family_and_operation(
    name: str, family: str, op: Op
) -> None:
    found = classify(name)
    assert found is not None
    assert (found.family, found.op) == (family, op)


@pytest.mark.parametrize("name", LOOK_ALIKES)
def test_names_that_contain_such_words_are_not_communication(name: str) -> None:
    assert classify(name) is None


def test_a_user_pattern_makes_a_kernel_communication() -> None:
    assert classify("flux::gemm_rs_all_gather") is None
    found = classify("flux::gemm_rs_all_gather", (r"flux::",))
    assert found is not None
    assert (found.family, found.op) == ("user", Op.ALL_GATHER)
