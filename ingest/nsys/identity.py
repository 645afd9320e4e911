"""Who a capture is about: versions, host, GPUs, clock and rank numbers, by an allow-list.

A capture holds the complete environment of the traced program. Only the few variables named here
are ever looked at, and nothing but the number in them is kept.
"""

import hashlib
import re
from dataclasses import dataclass

from traceq.ingest.nsys.export import Export
from traceq.ingest.versions import cuda_version_text, version_text

_RANK_VARIABLES = (
    "RANK",
    "OMPI_COMM_WORLD_RANK",
    "PMIX_RANK",
    "PMI_RANK",
    "MV2_COMM_WORLD_RANK",
    "SLURM_PROCID",
)
_SIZE_VARIABLES = (
    "WORLD_SIZE",
    "OMPI_COMM_WORLD_SIZE",
    "PMI_SIZE",
    "MV2_COMM_WORLD_SIZE",
    "SLURM_NTASKS",
)
_LOCAL_VARIABLES = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
_ALREADY_UTC_NS = 10**17  # 1973 in ns; no capture runs for three years
_VERSION = re.compile(r"(20\d\d\.\d+(?:\.\d+)*)")


@dataclass(frozen=True, slots=True)
class Identity:
    """The facts of an export that say who and when."""

    export: Export

    def metadata(self, name: str) -> str | None:
        """Returns: an entry of the export's own metadata, None when it has no such entry."""
        for table in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
            for (value,) in self.export.rows(table, ("value",), f"name = '{name}'"):
                return None if value is None else str(value)
        return None

    def _version(self, name: str) -> str | None:
        return version_text(self.metadata(name))

    @property
    def exporter_version(self) -> str | None:
        """Returns: the version of nsys that wrote the export."""
        return self._version("EXPORT_PRODUCT_VERSION")

    @property
    def schema_version(self) -> str | None:
        """Returns: the version of the export schema."""
        return self._version("EXPORT_SCHEMA_VERSION")

    @property
    def capture_version(self) -> str | None:
        """Returns: the version of nsys that captured the events, from where it was installed."""
        match = _VERSION.search(self._system("TargetInstallDir") or "")
        return match.group(1) if match else None

    @property
    def driver_version(self) -> str | None:
        """Returns: the version of the GPU driver."""
        return version_text(self._system("NvDriverVersion"))

    @property
    def cuda_version(self) -> str | None:
        """Returns: the version of CUDA that the driver supports."""
        return cuda_version_text(self._system("CudaDriverVersion"))

    @property
    def host_key(self) -> str | None:
        """Returns: a key that is equal for captures of one host and tells nothing else."""
        host = self._system("Hostname")
        return hashlib.sha256(host.encode()).hexdigest() if host else None

    def utc_origin_ns(self, first_ns: int) -> int | None:
        """Returns: UTC of time zero [ns since 1970], None when the export does not say it.

        Args:
            first_ns: first event time; a time beyond 1973 means that times are UTC already.
        """
        if first_ns > _ALREADY_UTC_NS:
            return 0
        rows = self.export.rows("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",))
        return rows[0][0] if rows and isinstance(rows[0][0], int) else None

    @property
    def rank(self) -> int | None:
        """Returns: the rank in the environment of the traced command."""
        return self._variable(_RANK_VARIABLES)

    @property
    def world_size(self) -> int | None:
        """Returns: the number of ranks in the environment of the traced command."""
        return self._variable(_SIZE_VARIABLES)

    @property
    def local_rank(self) -> int | None:
        """Returns: the local rank in the environment of the traced command."""
        return self._variable(_LOCAL_VARIABLES)

    def mpi_ranks(self) -> dict[int, int]:
        """Returns: the MPI rank of each process, by process key."""
        rows = self.export.rows("MPI_RANKS", ("globalTid", "rank"))
        return {
            tid >> 24: rank for tid, rank in rows if isinstance(tid, int) and isinstance(rank, int)
        }

    def gpu_name(self, pid: int, device: int) -> str | None:
        """Returns: the GPU model of a CUDA device of a process, None when the export cannot tell.

        The ordinal that activities carry is the process's own. Only TARGET_INFO_CUDA_DEVICE maps
        it to a GPU; without that table the answer is known only when all GPUs are of one model.
        """
        names = dict(self._gpus)
        for cuda_pid, cuda_id, gpu_id in self.export.rows(
            "TARGET_INFO_CUDA_DEVICE", ("pid", "cudaId", "gpuId")
        ):
            if (cuda_pid, cuda_id) == (pid, device) and gpu_id in names:
                return names[gpu_id]
        models = set(names.values())
        return models.pop() if len(models) == 1 else None

    @property
    def _gpus(self) -> list[tuple[int, str]]:
        number = "id" if "id" in self.export.columns("TARGET_INFO_GPU") else "deviceId"
        rows = self.export.rows("TARGET_INFO_GPU", (number, "name"))
        return [(gpu, str(name)) for gpu, name in rows if name]

    def _system(self, name: str) -> str | None:
        rows = self.export.rows("TARGET_INFO_SYSTEM_ENV", ("value",), f"name = '{name}'")
        return str(rows[0][0]) if rows and rows[0][0] is not None else None

    def _variable(self, names: tuple[str, ...]) -> int | None:
        texts = [
            str(value)
            for table, condition in (
                ("TARGET_INFO_SYSTEM_ENV", "name = 'DeviceEnvironment'"),
                ("META_DATA_CAPTURE", "name LIKE '%:ENVIRONMENT_VARIABLE'"),
            )
            for (value,) in self.export.rows(table, ("value",), condition)
        ]
        for name in names:
            pattern = re.compile(rf'(?:^|[;\n]){name}="?(\d+)"?(?=$|[;\n])')
            found = {int(match.group(1)) for text in texts for match in pattern.finditer(text)}
            if len(found) == 1:
                return found.pop()
        return None
