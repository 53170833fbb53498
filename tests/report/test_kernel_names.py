"""What the reports call kernels."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launchscope.report.kernel_names import short_name

_AT = "void at::native::"
_HIDDEN = "void at::native::(anonymous namespace)::"
_ITER = "at::TensorIteratorBase&"
_BINARY = "at::native::BinaryFunctor<"
_FOREACH = f"{_HIDDEN}multi_tensor_apply_kernel<at::native::(anonymous namespace)::TensorList"
_LAMBDAS = "::{lambda()#3}::operator()() const::{lambda()#12}::operator()() const::{lambda"
_CASES = {
    f"{_AT}vectorized_elementwise_kernel<4, {_BINARY}float, float, float, at::native::"
    "binary_internal::MulFunctor<float> >, std::array<char*, 3ul> >(int, int)": "mul",
    f"{_AT}elementwise_kernel_manual_unroll<128, 8, at::native::gpu_kernel_impl_nocast<{_BINARY}"
    "c10::BFloat16, c10::BFloat16, c10::BFloat16, at::native::binary_internal::MulFunctor<float> "
    f"> >({_ITER})::{{lambda(int, bool)#1}}>(int)": "mul",
    f"{_AT}vectorized_elementwise_kernel<4, at::native::CUDAFunctorOnSelf_add<long>, "
    "std::array<char*, 2ul> >(int)": "add",
    f"{_AT}elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::"
    f"direct_copy_kernel_cuda({_ITER}){_LAMBDAS}(c10::BFloat16)#1}}>({_ITER})>(int)": "direct_copy",
    f"{_AT}unrolled_elementwise_kernel<at::native::bfloat16_copy_kernel_cuda({_ITER})::"
    "{lambda(float)#1}, std::array<char*, 2ul>, 4>(int)": "bfloat16_copy",
    f"{_AT}elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::(anonymous "
    f"namespace)::where_kernel_impl(at::TensorIterator&){_LAMBDAS}(bool, float, float)#1}}>"
    f"({_ITER})>(int)": "where",
    f"{_AT}_scatter_gather_elementwise_kernel<128, 8, at::native::_cuda_scatter_fill_internal_"
    "kernel<at::native::OpaqueType<8>, long>::operator()<TensorAssign>()::{lambda(int)#1}"
    ">(int)": "scatter_fill",
    "void (anonymous namespace)::elementwise_kernel_with_index<int, at::native::arange_cuda_out("
    f"c10::Scalar const&){_LAMBDAS}(long)#1}}>(int)": "arange",
    f"{_HIDDEN}distribution_elementwise_grid_stride_kernel<float, 4, at::native::templates::cuda::"
    "normal_and_transform<c10::BFloat16, float, at::CUDAGeneratorImpl*> >(long)":
        "normal_and_transform",
    f"{_AT}reduce_kernel<512, 1, at::native::ReduceOp<c10::BFloat16, at::native::MeanOps"
    "<c10::BFloat16, float, float, c10::BFloat16>, unsigned int, c10::BFloat16, 4, 4> >"
    "(int)": "mean",
    f"{_AT}reduce_kernel<128, 4, at::native::ReduceOp<float, at::native::func_wrapper_t<float, "
    "at::native::sum_functor<float, float, float>::operator()(at::TensorIterator&)::{lambda(float, "
    "float)#1}>, unsigned int, float, 4, 4> >(int)": "sum",
    f"{_FOREACH}Metadata<2>, at::native::(anonymous namespace)::UnaryOpFunctor<float, 2, 1, 1>, "
    "at::native::Sqrt<float> >(int)": "sqrt (multi-tensor)",
    f"{_FOREACH}ScalarListMetadata<float, 3>, at::native::(anonymous namespace)::"
    "PointwiseOpScalarListFunctor<float, 3, 3, 0>, std::divides<float> >"
    "(int)": "divides (multi-tensor)",
    f"{_HIDDEN}multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
    "FusedOptimizerTensorListMetadata<4>, at::native::(anonymous namespace)::FusedAdamMathFunctor"
    "<float, 4, (at::native::(anonymous namespace)::ADAM_MODE)1, false> >"
    "(int)": "adam (multi-tensor)",
    "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float>"
    "(long)": "adam (multi-tensor)",
    f"{_HIDDEN}vectorized_layer_norm_kernel<float, float, false>(int, float)":
        "vectorized_layer_norm_kernel",
    "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8>"
    "(cutlass_80_wmma::Params)":
        "cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8",
    "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64> >(int)":
        "flash_fwd_kernel",
    "triton_poi_fused_add_0": "triton_poi_fused_add_0",
    "Memcpy HtoD (Pageable -> Device)": "Memcpy HtoD (Pageable -> Device)",
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
def test_a_kernel_has_the_name_of_its_operation_or_function(name: str, short: str) -> None:
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
    ["<", ">", "(", "(<", ")", "a", "_", "at::native::reduce_kernel<", "{lambda(", "_ZN1a",
     "Kernel2<", "elementwise_kernel<at::native::", "elementwise_", "a<b>(c) ", "9",
     "elementwise_kernel<f_kernel"],
)  # fmt: skip
def test_a_name_of_a_megabyte_is_shortened(part: str) -> None:
    assert short_name(part * (1_000_000 // len(part)))  # never ends if that takes quadratic time
