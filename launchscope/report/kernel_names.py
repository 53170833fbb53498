"""What a person calls a kernel: `layer_norm`, `gemm bf16 64x48 (cuBLAS)`, `adamw (multi-tensor)`.

A short name says only what the full one does, and several kernels may share it.
"""

from __future__ import annotations

import re
from functools import lru_cache

_READ = 4096  # characters that patterns look at
# fmt: off
_TYPES = {
    "float": "f32", "double": "f64", "bool": "bool", "complex": "complex",
    "BFloat16": "bf16", "__nv_bfloat16": "bf16", "__hip_bfloat16": "bf16",
    "Half": "f16", "__half": "f16", "half": "f16", "fp16": "f16", "fp32": "f32",
    "char": "i8", "short": "i16", "int": "i32", "long": "i64", "unsigned char": "u8",
    "unsigned short": "u16", "unsigned int": "u32", "unsigned long": "u64",
    "int8_t": "i8", "uint8_t": "u8", "int32_t": "i32", "int64_t": "i64",
    # As cuBLAS and Tensile abbreviate.
    "h": "f16", "t": "bf16", "s": "f32", "d": "f64",
    "H": "f16", "B": "bf16", "S": "f32", "D": "f64",
}
_WAYS = {
    "fprop": "forward", "dgrad": "backward data", "wgrad": "backward weight", "bprop": "backward",
    "fwd": "forward", "bwd": "backward", "wrw": "backward weight",
    "cutlassf": "forward", "cutlassb": "backward", "forward": "",
}
_CALLED = {
    "divides": "div", "multiplies": "mul", "plus": "add", "minus": "sub", "negate": "neg",
    "direct_copy": "copy", "norm_two": "norm", "lp_norm": "norm", "arg_max": "argmax",
    "arg_min": "argmin", "max_nan": "max", "min_nan": "min", "and": "all", "or": "any",
    "compare_eq": "eq", "pow_tensor": "pow", "normal_and_transform": "normal",
    "uniform_and_transform": "uniform",
    "amp_foreach_non_finite_check_and_unscale": "amp_unscale",
}
_ARROW = {  # to what they convert
    "bfloat16_copy": "bf16", "float16_copy": "f16", "bfloat16tofloat32_copy": "f32",
    "float16tofloat32_copy": "f32",
}
_TILE = r"(?P<tile>\d+x\d+)"
_XMMA = r"(?:f32f32_(?=tf32))?(?P<type>tf32|bf16|f16|f32|f64|i8)\w{0,80}?_tilesize" + _TILE
_GEMM = (
    r"(?:[a-z]{1,12}_){0,4}(?:(?P<type>bf16|fp16|f16|tf32|f64|[shd](?=\d*gemm))\w{0,12}?|[a-z]{1,3})"
    r"gemm_(?:[a-z]{1,5}\d*_){0,2}" + _TILE
)
_NCCL = r"^nccl\w{0,8}Kernel_(?P<op>"
_REDUCES = _NCCL + r"AllReduce|ReduceScatter|Reduce)_"
# The first that is found names the kernel; each repetition is short, so that none takes long.
_KNOWN = [(re.compile(pattern), shown) for pattern, shown in (
    (r"^nvjet_(?:sm\d+_)?(?P<type>[htsd])[a-z]{2}_" + _TILE, "gemm {type} {tile} (cuBLAS)"),
    (r"^nvjet_(?:sm\d+_)?[a-z]{1,9}_" + _TILE, "gemm {tile} (cuBLAS)"),
    (r"^sm\d+_xmma_gemm_" + _XMMA, "gemm {type} {tile} (cuBLAS)"),
    (r"^sm\d+_xmma_(?P<way>fprop|dgrad|wgrad)_(?:[a-z]{2,8}_){1,5}" + _XMMA,
     "conv {way} {type} {tile} (cuDNN)"),
    (r"\bcutlass_\d\d_" + _GEMM, "gemm {type} {tile} (CUTLASS)"),
    (r"^(?:maxwell|volta|turing|ampere|hopper)_" + _GEMM, "gemm {type} {tile} (cuBLAS)"),
    (r"^Cijk_A\w{1,9}_B[a-z]{1,9}_(?P<type>[HBSD])(?=[HBSD_])\w{0,60}?_MT" + _TILE,
     "gemm {type} {tile} (Tensile)"),
    (r"^Cijk_\w{1,90}?_MT" + _TILE, "gemm {tile} (Tensile)"),
    (r"\bgemvx::|^(?:void )?(?:\w{1,30}::)?gemv\w", "gemv (cuBLAS)"),
    (r"\bsplitKreduce_kernel", "split-K reduce (cuBLAS)"),
    (r"^cudnn_(?:[a-z]{1,9}_){1,2}(?P<type>[hs])cudnn_(?:winograd_)?" + _TILE,
     "conv {type} {tile} (cuDNN)"),
    (r"cudnn\w{0,60}ImplicitGemmConvolution\w{0,200}?Conv\dd(?P<way>Fprop|Dgrad|Wgrad)",
     "conv {way} (cuDNN)"),
    (r"cudnn\w{0,9}::Kernel<cutlass_\w{0,30}?(?P<way>fprop|dgrad|wgrad)_[a-z]{1,12}_"
     r"(?P<type>[a-z]{1,2}f?\d\d)_" + _TILE, "conv {way} {type} {tile} (cuDNN)"),
    (r"\bcudnn::detail::(?P<way>dgrad|wgrad)_engine", "conv {way} (cuDNN)"),
    (r"^igemm_(?P<way>fwd|bwd|wrw)_\w{4,6}_[a-z]{4,5}_(?P<type>bf16|fp16|fp32)\w{0,20}?_bt" + _TILE,
     "conv {way} {type} {tile} (MIOpen)"),
    (r"^cudnn_generated\w{0,30}_sdpa_\w{0,20}?_(?P<way>[fb]prop)", "attention {way} (cuDNN)"),
    (r"^fmha_(?P<way>cutlass[FB])_(?P<type>bf16|f16|f32)_\w{0,20}?_" + _TILE,
     "attention {way} {type} {tile} (CUTLASS)"),
    (r"\bflash_(?P<way>fwd|bwd)_\w{0,60}kernel", "flash_attention {way}"),
    (_REDUCES + r"(?P<what>[A-Z][A-Za-z]{2,10})_(?P<type>[a-z]+\d\w{0,5}?)_",
     "{op} {what} {type} (NCCL)"),
    (_REDUCES + r"[A-Z_\d]{2,30}_(?P<what>[A-Z][a-z]{2,10})_(?P<type>\w{1,20})\(",
     "{op} {what} {type} (NCCL)"),
    (_NCCL + r"[A-Za-z]{1,30})", "{op} (NCCL)"),
    (r"\bsoftmax_warp_(?P<way>forward|backward)<[^<>]{1,120}, \d+, true,", "log_softmax {way}"),
    (r"\bcunn_SoftMax(?P<way>Forward|Backward)\w{0,9}<.{1,400}\bLogSoftMax", "log_softmax {way}"),
    (r"\b(?:\w{1,9}_)?soft_?max\w{0,12}(?P<way>forward|backward)", "softmax {way}"),
    (r"\bcunn_SoftMax(?P<way>Forward|Backward)", "softmax {way}"),
    (r"\blayer_norm_grad_input|\bGammaBetaBackward(?:Simple)?CUDAKernel(?:Template|_32x32)?<|"
     r"\bcuCompute(?:Part)?GradGammaBeta", "layer_norm backward"),
    (r"\bvectorized_layer_norm|\bLayerNormForward", "layer_norm"),
    (r"\bbatch_norm_backward|\bbn_bw_", "batch_norm backward"),
    (r"\bbatch_norm_(?:collect|transform|update)|\bbn_fw_", "batch_norm"),
    (r"\bnll_loss_(?P<way>forward|backward)", "nll_loss {way}"),
    (r"\bembedding_backward", "embedding backward"),
    (r"\bindexSelect|\bvectorized_gather", "index_select"),
    (r"\bindexFunc(?:Large|Small)Index\b.{1,200}\bReduceAdd\b", "index_add"),
    (r"\bCatArrayBatchedCopy", "cat"),
    (r"\b(?P<op>(?:max|avg)_pool)\w{0,3}_(?P<way>forward|backward)", "{op} {way}"),
    (r"\bfused_dropout", "dropout"),
    (r"\blpnorm_cleanup", "norm (multi-tensor)"),
    (r"\bcub::(?:\w{1,60}::){0,3}Device(?P<op>\w{1,60}?)Kernel\b", "{op} (CUB)"),
)]
# fmt: on
# Templates of PyTorch; the operation is among their arguments.
_MADE = re.compile(
    r"\b(?:(multi_tensor_apply_kernel)|elementwise_kernel_with_index|(?<=at::native::)"
    r"(?:\w{0,40}elementwise_(?:grid_stride_)?kernel\w{0,40}|reduce_kernel))<"
)
_WORD = re.compile(r"unsigned (?:char|short|int|long)\b|\{lambda\([^(){}]{1,200}\)|[A-Za-z_]\w*")
_WRAPPER = re.compile(
    r"gpu_\w+|[AB]?UnaryFunctor|BinaryFunctor|(?:Unary|Binary|Ternary|Pointwise)Op\w+|\w*TensorList\w+"
    r"|type_specialized\w+|apply|ReduceOp|func_wrapper_t|at|native|std|c10|cuda|templates|detail"
    r"|binary_internal|fbgemm_gpu|true|false|lambda|OpaqueType|[{]\w+[(].*"
)
_AFFIX = re.compile(
    r"^(?:_?cuda_|cudafunctor_(?:on_self_|on_other_)?|fused_|launch_|_)"
    r"|_(?:kernel|cuda|cudakernel|impl|internal|math|functor|ops|out|scalar|)$"
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_MANGLED = re.compile(r"\d{1,3}")


@lru_cache(4096)
def short_name(name: str) -> str:
    """Empty only if the name is; what is not recognized keeps the name of its function."""
    return recognized(name) or _function(name) or name


def recognized(name: str) -> str | None:
    """None for what no pattern here describes."""
    if name.startswith(("Memcpy", "Memset", "triton_")):
        return name
    text = name[:_READ].replace("(anonymous namespace)::", "")
    if made := _MADE.search(text):
        return _operation(made[0], text[made.end() :], is_multi_tensor=made[1] is not None)
    for pattern, shown in _KNOWN:
        if found := pattern.search(text):
            parts = dict.fromkeys(("op", "what", "way", "type", "tile"), "")
            parts |= {key: value or "" for key, value in found.groupdict().items()}
            way = parts["way"].lower()
            parts |= {
                "op": _snake(parts["op"]),
                "what": parts["what"].lower(),
                "way": _WAYS.get(way, way),
                "type": _TYPES.get(parts["type"], parts["type"]),
            }
            return " ".join(shown.format(**parts).split())
    return None


def _operation(template: str, arguments: str, *, is_multi_tensor: bool) -> str | None:
    """`mul f32` or `sqrt (multi-tensor)`: the first name that wraps no other, and its type."""
    kind = ""
    words = _WORD.finditer(arguments)
    for word in words:
        kind = kind or _TYPES.get(word[0], "")
        if word[0] not in _TYPES and not _WRAPPER.fullmatch(word[0]):
            break
    else:
        return None
    called = _snake(word[0]) or word[0]
    if is_multi_tensor:
        if "PointwiseOp" in arguments and called in ("div", "mul"):
            called = f"addc{called}"
        is_adamw = called == "adam" and "ADAM_MODE)1" in arguments
        return f"{'adamw' if is_adamw else called} (multi-tensor)"
    if "distribution" in template:
        kind = ""  # that of the generator
    is_template = arguments[word.end() : word.end() + 1] == "<"
    for word in () if kind else words:
        is_lambda = word[0].startswith("{")
        if is_template or is_lambda:
            kinds = [_TYPES[part] for part in _WORD.findall(word[0], is_lambda) if part in _TYPES]
            kind = next((one for one in kinds if one != "bool"), "".join(kinds[:1]))
        if kind or (is_template and word[0] not in ("c10", "true", "false")):
            break
    # Of these the type is of an index, or only as wide as the values.
    is_other = "OpaqueType" in arguments or "with_index" in template
    # With casts the type is that of one side.
    is_cast = "gpu_kernel_impl<" in arguments or "WithCast" in arguments
    if is_other or (called == "copy" and is_cast):
        kind = ""
    if called in _ARROW:
        return f"copy {kind}→{_ARROW[called]}" if kind else "copy"
    return f"{called} {kind}".strip()


def _snake(text: str) -> str:
    """The name of an operation without what only its code needs: `mul` of `MulFunctor`."""
    text = _CAMEL.sub("_", text[:200]).lower()
    while (shorter := _AFFIX.sub("", text)) != text:
        text = shorter
    return _CALLED.get(text, text)


def _function(name: str) -> str:
    """The name of the function, without its namespaces, templates and arguments."""
    name = name.replace("(anonymous namespace)::", "")
    if name.startswith("_ZN"):
        at, part = 3, ""
        while found := _MANGLED.match(name, at):
            at = found.end() + int(found[0])
            part = name[found.end() : at]
        return part
    signs: list[str] = []
    opened: list[str] = []
    for sign in name:
        if sign == "(" and not opened:
            break
        if sign in "<(":
            opened.append(sign)
        elif sign in ">)":
            while sign == ")" and opened and opened[-1] == "<":
                opened.pop()
            if opened and (opened[-1] == "(") == (sign == ")"):
                opened.pop()
        elif not opened:
            signs.append(sign)
    text = "".join(signs).removeprefix("void ").rpartition("::type ")[2].strip()
    first, _, last = text.rpartition("::")
    return f"{first.rpartition('::')[2]}::{last}" if first and last.lower() == "kernel" else last
