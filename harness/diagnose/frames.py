"""Whose code a Python frame is: the caller's own, or torch's and its decorators'."""

_DECORATORS = frozenset(("contextlib", "functools", "typing_extensions"))
_TORCH_PARTS = frozenset(
    (
        *("distributed", "nn", "autograd", "utils", "optim", "multiprocessing", "cuda", "fx"),
        *("_dynamo", "_inductor", "_tensor.py", "_ops.py", "_compile.py", "_higher_order_ops"),
        *("testing", "ao", "amp", "export", "library.py"),
    )
)


def is_own_code(file: str) -> bool:
    """Whether a file is neither torch's nor a decorator's of the standard library.

    A folder that merely happens to be called torch is somebody's own.
    """
    parts = file.replace("\\", "/").split("/")
    inside_torch = any(
        part == "torch" and (parts[i - 1].endswith("-packages") or parts[i + 1] in _TORCH_PARTS)
        for i, part in enumerate(parts[:-1])
    )
    return parts[-1].removesuffix(".py") not in _DECORATORS and not inside_torch
