"""Names of device operations: the short form of a kernel's, the common form of a copy's."""

import re

_PREFIX = re.compile(r"^(?:static |inline |__global__ )*(?:void|int|bool|auto) ")
_ANONYMOUS = re.compile(r"\(anonymous namespace\)")
_KIND = re.compile(r"\b(HtoD|DtoH|DtoD|PtoP|HtoH|HtoA|AtoH|AtoA|AtoD|DtoA)\b")
_ENDS = {"host": "H", "device": "D", "peer": "P"}
_WORDS = re.compile(r"(Host|Device|Peer)To(Host|Device|Peer)", re.IGNORECASE)


def short_name(name: str) -> str:
    """Returns: a kernel name without namespaces, template arguments and parameters.

    >>> short_name("void at::native::vectorized_elementwise_kernel<4, at::F<float>>(int, at::F)")
    'vectorized_elementwise_kernel'
    >>> short_name("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)")
    'ncclDevKernel_Generic'
    """
    plain = _ANONYMOUS.sub("", _PREFIX.sub("", name.strip()))
    head = re.split(r"[<(]", plain, maxsplit=1)[0].strip()
    return head.rsplit("::", 1)[-1] or name


def copy_name(name: str) -> str:
    """Returns: the name of a copy by its direction, as CUDA and HIP traces both tell it.

    >>> copy_name("Memcpy HtoD (Pageable -> Device)"), copy_name("CopyDeviceToHost")
    ('memcpy HtoD', 'memcpy DtoH')
    """
    match = _KIND.search(name)
    if match:
        return f"memcpy {match[1]}"
    match = _WORDS.search(name)
    if match:
        return f"memcpy {_ENDS[match[1].lower()]}to{_ENDS[match[2].lower()]}"
    return "memcpy unknown"
