"""What the reports call the kernels of libraries, and of anybody else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launchscope.report.kernel_names import recognized, short_name

_AT = "void at::native::"
_HIDDEN = "void at::native::(anonymous namespace)::"
_ITER = "at::TensorIteratorBase&"
_BINARY = "at::native::BinaryFunctor<"
_FOREACH = f"{_HIDDEN}multi_tensor_apply_kernel<at::native::(anonymous namespace)::TensorList"
_LAMBDAS = "::{lambda()#3}::operator()() const::{lambda()#12}::operator()() const::{lambda"
_CASES = {
    f"{_AT}vectorized_elementwise_kernel<4, {_BINARY}float, float, float, at::native::"
    "binary_internal::MulFunctor<float> >, std::array<char*, 3ul> >(int, int)": "mul f32",
    f"{_AT}elementwise_kernel_manual_unroll<128, 8, at::native::gpu_kernel_impl_nocast<{_BINARY}"
    "c10::BFloat16, c10::BFloat16, c10::BFloat16, at::native::binary_internal::MulFunctor<float> "
    f"> >({_ITER})::{{lambda(int, bool)#1}}>(int)": "mul bf16",
    f"{_AT}vectorized_elementwise_kernel<4, at::native::CUDAFunctorOnSelf_add<long>, "
    "std::array<char*, 2ul> >(int)": "add i64",
    f"{_AT}elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::"
    f"direct_copy_kernel_cuda({_ITER}){_LAMBDAS}(c10::BFloat16)#1}}>({_ITER})>(int)": "copy bf16",
    f"{_AT}elementwise_kernel<128, 4, at::native::gpu_kernel_impl<at::native::"
    f"direct_copy_kernel_cuda({_ITER}){_LAMBDAS}(c10::BFloat16)#1}}>({_ITER})>(int)": "copy",
    f"{_AT}unrolled_elementwise_kernel<at::native::bfloat16_copy_kernel_cuda({_ITER})::"
    "{lambda(float)#1}, std::array<char*, 2ul>, 4>(int)": "copy f32→bf16",
    f"{_AT}elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::(anonymous "
    f"namespace)::where_kernel_impl(at::TensorIterator&){_LAMBDAS}(bool, float, float)#1}}>"
    f"({_ITER})>(int)": "where f32",
    f"{_AT}_scatter_gather_elementwise_kernel<128, 8, at::native::_cuda_scatter_fill_internal_"
    "kernel<at::native::OpaqueType<8>, long>::operator()<TensorAssign>()::{lambda(int)#1}"
    ">(int)": "scatter_fill",
    "void (anonymous namespace)::elementwise_kernel_with_index<int, at::native::arange_cuda_out("
    f"c10::Scalar const&){_LAMBDAS}(long)#1}}>(int)": "arange",
    f"{_HIDDEN}distribution_elementwise_grid_stride_kernel<float, 4, at::native::templates::cuda::"
    "normal_and_transform<c10::BFloat16, float, at::CUDAGeneratorImpl*> >(long)": "normal bf16",
    f"{_AT}reduce_kernel<512, 1, at::native::ReduceOp<c10::BFloat16, at::native::MeanOps"
    "<c10::BFloat16, float, float, c10::BFloat16>, unsigned int, c10::BFloat16, 4, 4> >"
    "(int)": "mean bf16",
    f"{_AT}reduce_kernel<128, 4, at::native::ReduceOp<float, at::native::func_wrapper_t<float, "
    "at::native::sum_functor<float, float, float>::operator()(at::TensorIterator&)::{lambda(float, "
    "float)#1}>, unsigned int, float, 4, 4> >(int)": "sum f32",
    f"{_FOREACH}Metadata<2>, at::native::(anonymous namespace)::UnaryOpFunctor<float, 2, 1, 1>, "
    "at::native::Sqrt<float> >(int)": "sqrt (multi-tensor)",
    f"{_FOREACH}ScalarListMetadata<float, 3>, at::native::(anonymous namespace)::"
    "PointwiseOpScalarListFunctor<float, 3, 3, 0>, std::divides<float> >"
    "(int)": "addcdiv (multi-tensor)",
    f"{_FOREACH}Metadata<1>, at::native::(anonymous namespace)::BinaryOpScalarFunctor<float, 1, 1, "
    "0>, std::minus<float>, float>(int)": "sub (multi-tensor)",
    f"{_HIDDEN}multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
    "FusedOptimizerTensorListMetadata<4>, at::native::(anonymous namespace)::FusedAdamMathFunctor"
    "<float, 4, (at::native::(anonymous namespace)::ADAM_MODE)1, false> >"
    "(int)": "adamw (multi-tensor)",
    "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float>"
    "(long)": "adam (multi-tensor)",
    f"{_HIDDEN}vectorized_layer_norm_kernel<float, float, false>(int, float)": "layer_norm",
    f"{_HIDDEN}GammaBetaBackwardCUDAKernelTemplate<float, float, 32u>(long)": "layer_norm backward",
    "void (anonymous namespace)::softmax_warp_forward<float, float, float, 7, false, false>"
    "(float*)": "softmax",
    "void (anonymous namespace)::softmax_warp_backward<float, float, float, 7, true, false>"
    "(float*)": "log_softmax backward",
    f"{_HIDDEN}cunn_SoftMaxForward<8, float, float, float, at::native::(anonymous namespace)::"
    "SoftMaxForwardEpilogue>(float*)": "softmax",
    f"{_HIDDEN}embedding_backward_feature_kernel<float, float, long>(long)": "embedding backward",
    f"{_AT}vectorized_gather_kernel<16, long>(char*, char*, long*)": "index_select",
    f"{_HIDDEN}CatArrayBatchedCopy_vectorized<at::native::OpaqueType<4u>, int, 3>(char*)": "cat",
    "nvjet_sm90_tst_64x48_64x15_2x4_h_bz_NNT": "gemm bf16 64x48 (cuBLAS)",
    "nvjet_sm90_hsh_64x8_64x16_4x1_v_bz_bias_TNT": "gemm f16 64x8 (cuBLAS)",
    "nvjet_sm100_qqtst_128x64_64x8_1x2_h_bz_NNT": "gemm 128x64 (cuBLAS)",
    "ampere_sgemm_32x32_sliced1x4_tn": "gemm f32 32x32 (cuBLAS)",
    "ampere_gcgemm_64x64_nt": "gemm 64x64 (cuBLAS)",
    "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_tn": "gemm bf16 128x64 (cuBLAS)",
    "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4_"
    "alignc4_execute_kernel__5x_cublas": "gemm f32 128x128 (cuBLAS)",
    "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x64x32_warpgroupsize1x1x1_execute_segment_"
    "k_off_kernel__5x_cublas": "gemm tf32 128x64 (cuBLAS)",
    "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8>"
    "(cutlass_80_wmma::Params)": "gemm bf16 16x16 (CUTLASS)",
    "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, float, float, float, "
    "float, false, true, true, false, 7, false, cublasGemvParamsEx<int> >(int)": "gemv (cuBLAS)",
    "Cijk_Ailk_Bljk_BBS_BH_MT128x64x64_MI32x32x8x1_SN_1LDSB0": "gemm bf16 128x64 (Tensile)",
    "sm80_xmma_wgrad_implicit_gemm_indexed_wo_smem_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize16x64"
    "x64_stage1_execute_kernel__5x_cudnn": "conv backward weight tf32 16x64 (cuDNN)",
    "cudnn_infer_volta_scudnn_128x64_relu_medium_nn_v1": "conv f32 128x64 (cuDNN)",
    "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x64_1x4x1_kernel0_0":
        "attention backward (cuDNN)",
    "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float>::Params)":
        "attention forward f32 64x64 (CUTLASS)",
    "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64> >(int)":
        "flash_attention forward",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)":
        "all_reduce sum f32 (NCCL)",
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)": "all_reduce sum f32 (NCCL)",
    "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)": "send_recv (NCCL)",
    "void at_cuda_detail::cub::DeviceScanKernel<int>(int)": "scan (CUB)",
    "triton_poi_fused_add_0": "triton_poi_fused_add_0",
    "Memcpy HtoD (Pageable -> Device)": "Memcpy HtoD (Pageable -> Device)",
    "Memset (Device)": "Memset (Device)",
}  # fmt: skip
_OF_OTHERS = {
    "void (anonymous namespace)::my_elementwise_kernel<Mine<float> >(float*)":
        "my_elementwise_kernel",
    "std::enable_if<(((8)>(0)))&&vllm::_typeConvert<c10::BFloat16>::exists, void>::type "
    "vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(long)": "fused_add_rms_norm_kernel",
    "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi64EEvPT0_PT_": "add_rmsnorm_quant_kernel",
    "void mine::kernel<int>(int)": "mine::kernel",
    "foo(int*) [clone .kd]": "foo",
    "a b c": "a b c",
    "void <<<": "void <<<",
    "()": "()",
    " ": " ",
    "": "",
}  # fmt: skip


@pytest.mark.parametrize(("name", "short"), _CASES.items())
def test_a_kernel_of_a_library_has_the_name_that_a_person_uses(name: str, short: str) -> None:
    assert recognized(name) == short == short_name(name)


@pytest.mark.parametrize(("name", "short"), _OF_OTHERS.items())
def test_any_other_kernel_keeps_the_name_of_its_function(name: str, short: str) -> None:
    assert recognized(name) is None
    assert short_name(name) == short


_PARTS = sorted({part for name in _CASES for part in (name[:40], name[-40:])})


@given(
    st.one_of(
        st.text(),
        st.lists(st.sampled_from([*"<>(){}: ,_", "::", "void ", "lambda", *_PARTS])).map("".join),
        st.builds(lambda text, at: text[at:], st.sampled_from([*_CASES]), st.integers(0, 200)),
    )
)
def test_any_text_has_a_short_name(name: str) -> None:
    assert bool(short_name(name)) == bool(name)


@pytest.mark.parametrize(
    "part",
    ["<", ">", "(", "(<", ")", "a", "_", "cub::", "at::native::reduce_kernel<", "{lambda(", "_ZN1a",
     "nvjet_", "cutlass_80_", "softmax_warp_forward<", "cudnn_x_", "sm80_xmma_gemm_f32f32", "1x",
     "elementwise_kernel<at::native::", "elementwise_", "Device", "SoftMax", "a<b>(c) ", "9",
     "indexFuncLargeIndex ", "elementwise_kernel<f_kernel", "nccl", "Cijk_A_B_"],
)  # fmt: skip
def test_a_name_of_a_megabyte_is_shortened(part: str) -> None:
    assert short_name(part * (1_000_000 // len(part)))  # never ends if that takes quadratic time
