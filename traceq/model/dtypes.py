"""Element types, by the names that profilers and libraries give them."""

_BYTES = {
    "float": 4, "double": 8, "half": 2, "bfloat16": 2, "char": 1, "byte": 1, "short": 2, "int": 4,
    "long": 8, "bool": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1, "complexfloat": 8, "complexdouble": 16,
    # as C++ writes them
    "signed char": 1, "unsigned char": 1, "short int": 2, "long int": 8, "long long": 8,
    "unsigned int": 4, "unsigned long": 8,
    # as NCCL writes them
    "int8": 1, "uint8": 1, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8, "float16": 2,
    "float32": 4, "float64": 8, "float8e4m3": 1, "float8e5m2": 1,
}  # fmt: skip


def element_bytes(dtype: object) -> int | None:
    """Returns: bytes of one element of a type, None for a type that is not known.

    >>> element_bytes("c10::BFloat16"), element_bytes("Float"), element_bytes("Float4")
    (2, 4, None)
    """
    return _BYTES.get(str(dtype).lower().removeprefix("c10::"))
