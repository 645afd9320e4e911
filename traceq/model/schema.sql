-- The run file: one DuckDB database for one run. Times are integer nanoseconds on the run's common
-- axis, whose zero is the earliest device start. NULL means unknown, never zero.

CREATE TABLE run (
    name VARCHAR NOT NULL,
    created_at TIMESTAMP NOT NULL,
    traceq_version VARCHAR NOT NULL,
    schema_version INTEGER NOT NULL,
    world_size INTEGER,
    nodes INTEGER,
    gpus_per_node INTEGER,
    scaling_note VARCHAR,
    config JSON NOT NULL
);
COMMENT ON TABLE run IS 'The run itself: exactly one row';
COMMENT ON COLUMN run.name IS 'Name given by the user, else derived from the source names';
COMMENT ON COLUMN run.created_at IS 'When this file was made (UTC)';
COMMENT ON COLUMN run.traceq_version IS 'Version of traceq that made this file';
COMMENT ON COLUMN run.schema_version IS 'Version of these tables';
COMMENT ON COLUMN run.world_size IS 'Ranks of the whole job [1]; NULL when no source says it';
COMMENT ON COLUMN run.nodes IS 'Distinct hosts among the sources [1]; NULL when a source does not name its host';
COMMENT ON COLUMN run.gpus_per_node IS 'Ranks present per host [1]; NULL when hosts are unknown or differ';
COMMENT ON COLUMN run.scaling_note IS 'Free words about how this run was scaled';
COMMENT ON COLUMN run.config IS 'Options that change the numbers, as JSON';

CREATE TABLE sources (
    source_id INTEGER PRIMARY KEY,
    file_name VARCHAR NOT NULL,
    kind VARCHAR NOT NULL CHECK (kind IN ('nsys', 'torch')),
    sha256 VARCHAR NOT NULL,
    bytes BIGINT NOT NULL,
    tool_version VARCHAR,
    capture_version VARCHAR,
    nccl_version VARCHAR,
    driver_version VARCHAR,
    cuda_version VARCHAR,
    schema_version VARCHAR,
    host VARCHAR,
    utc_origin_ns BIGINT,
    clock_offset_ns BIGINT,
    clock_residual_p95_ns BIGINT,
    clock_collectives BIGINT,
    complete BOOLEAN NOT NULL,
    events_read BIGINT NOT NULL,
    events_skipped BIGINT NOT NULL
);
COMMENT ON TABLE sources IS 'One row per input file';
COMMENT ON COLUMN sources.source_id IS 'Number of the source inside this file [id]';
COMMENT ON COLUMN sources.file_name IS 'Base name of the input file, never its path';
COMMENT ON COLUMN sources.kind IS 'Format: nsys or torch';
COMMENT ON COLUMN sources.sha256 IS 'Checksum of the input file as given';
COMMENT ON COLUMN sources.bytes IS 'Size of the input file as given [bytes]';
COMMENT ON COLUMN sources.tool_version IS 'Version of the tool that wrote the file (for nsys: the exporter)';
COMMENT ON COLUMN sources.capture_version IS 'Version of the tool that captured the events';
COMMENT ON COLUMN sources.nccl_version IS 'Version of NCCL that ran; NULL when the source does not say it';
COMMENT ON COLUMN sources.driver_version IS 'Version of the GPU driver; NULL when the source does not say it';
COMMENT ON COLUMN sources.cuda_version IS 'Version of CUDA that the driver supports; NULL when the source does not say it';
COMMENT ON COLUMN sources.schema_version IS 'Version of the source format, as the file states it';
COMMENT ON COLUMN sources.host IS 'Label of the host inside this run (node0, node1, ...), never its name';
COMMENT ON COLUMN sources.utc_origin_ns IS 'UTC of the source''s time zero [ns since 1970]; NULL when the source does not say it';
COMMENT ON COLUMN sources.clock_offset_ns IS 'Correction added after placing the source on UTC [ns]; NULL until clocks are aligned';
COMMENT ON COLUMN sources.clock_residual_p95_ns IS '95th percentile of what alignment leaves [ns]; NULL until clocks are aligned';
COMMENT ON COLUMN sources.clock_collectives IS 'Collectives that the correction rests on [1]; NULL until clocks are aligned';
COMMENT ON COLUMN sources.complete IS 'False when the capture is known to have lost events or the file was cut short';
COMMENT ON COLUMN sources.events_read IS 'Device operations read [1]';
COMMENT ON COLUMN sources.events_skipped IS 'Device operations left out of all times because theirs are impossible [1]';

CREATE TABLE ranks (
    rank INTEGER PRIMARY KEY,
    source_id INTEGER NOT NULL REFERENCES sources (source_id),
    pid BIGINT,
    device INTEGER,
    device_kind VARCHAR NOT NULL CHECK (device_kind IN ('gpu', 'cpu')),
    gpu_name VARCHAR,
    host VARCHAR,
    node INTEGER,
    local_rank INTEGER,
    rank_source VARCHAR NOT NULL
        CHECK (rank_source IN ('torch', 'nccl_init', 'mpi', 'env', 'file_name', 'user', 'order'))
);
COMMENT ON TABLE ranks IS 'One row per rank: a device used by a process of a source';
COMMENT ON COLUMN ranks.rank IS 'Global rank [id]';
COMMENT ON COLUMN ranks.source_id IS 'Source that holds this rank [id]';
COMMENT ON COLUMN ranks.pid IS 'Process id as the profiler saw it [id]; may repeat across hosts';
COMMENT ON COLUMN ranks.device IS 'Device ordinal inside the process [id]; 0 in every file when each rank sees one device';
COMMENT ON COLUMN ranks.device_kind IS 'gpu, or cpu for a run without device rows';
COMMENT ON COLUMN ranks.gpu_name IS 'GPU model; NULL when the source does not tell which';
COMMENT ON COLUMN ranks.host IS 'Label of the host inside this run (node0, node1, ...), never its name';
COMMENT ON COLUMN ranks.node IS 'Number of the host inside this run [id]';
COMMENT ON COLUMN ranks.local_rank IS 'Rank inside the host [id]; NULL when the source does not say it';
COMMENT ON COLUMN ranks.rank_source IS 'Where the rank number came from; order means that it was only counted';

CREATE TABLE streams (
    rank INTEGER NOT NULL,
    stream BIGINT NOT NULL,
    context BIGINT,
    role VARCHAR CHECK (role IN ('compute', 'comm', 'copy', 'mixed')),
    ops BIGINT NOT NULL,
    busy_ns BIGINT NOT NULL,
    comm_ns BIGINT,
    compute_ns BIGINT,
    first_ns BIGINT NOT NULL,
    last_ns BIGINT NOT NULL
);
COMMENT ON TABLE streams IS 'One row per rank and stream';
COMMENT ON COLUMN streams.rank IS 'Global rank [id]';
COMMENT ON COLUMN streams.stream IS 'Stream id inside the process [id]';
COMMENT ON COLUMN streams.context IS 'Context id inside the process [id]';
COMMENT ON COLUMN streams.role IS 'comm, compute or copy by the kernels it ran; copies beside kernels are usual and do not count; mixed when it ran both comm and compute; NULL when kernel names are unknown';
COMMENT ON COLUMN streams.ops IS 'Device operations [1]';
COMMENT ON COLUMN streams.busy_ns IS 'Union of all its intervals [ns]';
COMMENT ON COLUMN streams.comm_ns IS 'Union of its communication intervals [ns]; NULL when kernel names are unknown';
COMMENT ON COLUMN streams.compute_ns IS 'Union of its compute intervals [ns]; NULL when kernel names are unknown';
COMMENT ON COLUMN streams.first_ns IS 'First start [ns]';
COMMENT ON COLUMN streams.last_ns IS 'Last end [ns]';

CREATE TABLE kernel_names (
    name_id INTEGER PRIMARY KEY,
    name VARCHAR NOT NULL,
    short_name VARCHAR NOT NULL,
    class VARCHAR CHECK (class IN ('compute', 'comm', 'copy')),
    family VARCHAR,
    op VARCHAR
);
COMMENT ON TABLE kernel_names IS 'One row per distinct name of a device operation';
COMMENT ON COLUMN kernel_names.name_id IS 'Number of the name inside this file [id]';
COMMENT ON COLUMN kernel_names.name IS 'Full (demangled) name';
COMMENT ON COLUMN kernel_names.short_name IS 'Name without template arguments and parameters';
COMMENT ON COLUMN kernel_names.class IS 'Class that the name alone implies; NULL when the name is unknown';
COMMENT ON COLUMN kernel_names.family IS 'Communication family (nccl, nvshmem, ...), NULL for other names';
COMMENT ON COLUMN kernel_names.op IS 'Communication operation that the name tells, NULL for other names';

CREATE TABLE device_ops (
    rank INTEGER NOT NULL,
    stream BIGINT NOT NULL,
    start_ns BIGINT NOT NULL,
    end_ns BIGINT NOT NULL,
    name_id INTEGER NOT NULL,
    class VARCHAR,
    step BIGINT,
    correlation BIGINT,
    launch_ns BIGINT,
    bytes BIGINT
);
COMMENT ON TABLE device_ops IS 'One row per kernel, copy or set that ran on a device';
COMMENT ON COLUMN device_ops.rank IS 'Global rank [id]';
COMMENT ON COLUMN device_ops.stream IS 'Stream id inside the process [id]';
COMMENT ON COLUMN device_ops.start_ns IS 'Start on the device [ns]';
COMMENT ON COLUMN device_ops.end_ns IS 'End on the device [ns]';
COMMENT ON COLUMN device_ops.name_id IS 'Name, see kernel_names [id]';
COMMENT ON COLUMN device_ops.class IS 'compute, comm or copy; NULL when the kernel name is unknown';
COMMENT ON COLUMN device_ops.step IS 'Training step that launched it [id]; NULL outside of steps';
COMMENT ON COLUMN device_ops.correlation IS 'Correlation id, unique only inside the process [id]';
COMMENT ON COLUMN device_ops.launch_ns IS 'Start of the API call that launched it [ns]; NULL when the call was not captured';
COMMENT ON COLUMN device_ops.bytes IS 'Bytes copied or set [bytes]; NULL for kernels';

CREATE TABLE nccl_kernels (
    rank INTEGER NOT NULL,
    stream BIGINT NOT NULL,
    step BIGINT,
    start_ns BIGINT NOT NULL,
    end_ns BIGINT NOT NULL,
    op VARCHAR NOT NULL,
    comm_id VARCHAR,
    group_size INTEGER,
    seq BIGINT,
    bytes BIGINT,
    dtype VARCHAR,
    wire_bytes BIGINT,
    size_source VARCHAR,
    link VARCHAR NOT NULL CHECK (link IN ('intra', 'inter', 'unknown')),
    name_id INTEGER NOT NULL,
    collective_id BIGINT,
    match VARCHAR NOT NULL CHECK (match IN ('matched', 'partial', 'mismatched', 'unmatched')),
    transfer_ns BIGINT,
    wait_ns BIGINT,
    late_ns BIGINT,
    last_share DOUBLE,
    warmup BOOLEAN,
    bus_factor DOUBLE,
    send_bytes BIGINT,
    recv_bytes BIGINT,
    exposed_ns BIGINT,
    exposed_transfer_ns BIGINT,
    lead_compute_ns BIGINT,
    lead_comm_ns BIGINT,
    lead_copy_ns BIGINT,
    lead_idle_ns BIGINT,
    lead_ops BIGINT,
    lead_signature BIGINT
);
COMMENT ON TABLE nccl_kernels IS 'One row per communication operation on one rank';
COMMENT ON COLUMN nccl_kernels.rank IS 'Global rank [id]';
COMMENT ON COLUMN nccl_kernels.stream IS 'Stream id inside the process [id]';
COMMENT ON COLUMN nccl_kernels.step IS 'Training step that launched it [id]; NULL outside of steps';
COMMENT ON COLUMN nccl_kernels.start_ns IS 'Start on the device [ns]';
COMMENT ON COLUMN nccl_kernels.end_ns IS 'End on the device [ns]';
COMMENT ON COLUMN nccl_kernels.op IS 'Operation; unknown when nothing tells it';
COMMENT ON COLUMN nccl_kernels.comm_id IS 'Communicator, see communicators; NULL when unknown';
COMMENT ON COLUMN nccl_kernels.group_size IS 'Ranks of the communicator [1]; NULL when unknown';
COMMENT ON COLUMN nccl_kernels.seq IS 'Sequence number on the communicator [1]; NULL when the source has none';
COMMENT ON COLUMN nccl_kernels.bytes IS 'Size S of the operation by the conventions of nccl-tests [bytes]; NULL when unknown';
COMMENT ON COLUMN nccl_kernels.dtype IS 'Element type; NULL when unknown';
COMMENT ON COLUMN nccl_kernels.wire_bytes IS 'Bytes this rank sends under the ring model [bytes]; NULL when unknown';
COMMENT ON COLUMN nccl_kernels.size_source IS 'Where size and group size came from; NULL when unknown';
COMMENT ON COLUMN nccl_kernels.link IS 'Slowest link that the communicator must use';
COMMENT ON COLUMN nccl_kernels.name_id IS 'Name, see kernel_names [id]';
COMMENT ON COLUMN nccl_kernels.collective_id IS 'Number of the collective across ranks [id]; NULL when unmatched';
COMMENT ON COLUMN nccl_kernels.match IS 'How well it was matched across ranks';
COMMENT ON COLUMN nccl_kernels.transfer_ns IS 'Shortest duration among the ranks of the collective [ns]; NULL when unmatched';
COMMENT ON COLUMN nccl_kernels.wait_ns IS 'Own duration less transfer_ns [ns]; NULL when unmatched';
COMMENT ON COLUMN nccl_kernels.late_ns IS 'Median duration of the other ranks less the own: how much later than its median peer the rank arrived, negative when earlier [ns]; NULL when unmatched';
COMMENT ON COLUMN nccl_kernels.last_share IS '1 for the last rank to arrive, shared among ties, 0 for the others [1]; NULL when unmatched';
COMMENT ON COLUMN nccl_kernels.warmup IS 'True for a first call that is kept out of aggregates; NULL when it cannot be told';
COMMENT ON COLUMN nccl_kernels.bus_factor IS 'busbw / algbw for the operation and group size [1]; NULL where undefined';
COMMENT ON COLUMN nccl_kernels.send_bytes IS 'Bytes this rank sends in an exchange [bytes]; NULL for other operations or when unknown';
COMMENT ON COLUMN nccl_kernels.recv_bytes IS 'Bytes this rank receives in an exchange [bytes]; NULL for other operations or when unknown';
COMMENT ON COLUMN nccl_kernels.exposed_ns IS 'Part of the operation in which no compute ran on the rank [ns]';
COMMENT ON COLUMN nccl_kernels.exposed_transfer_ns IS 'Part of its last transfer_ns in which no compute ran on the rank [ns]; NULL when unmatched';
COMMENT ON COLUMN nccl_kernels.lead_compute_ns IS 'Compute between the end of the previous operation of the communicator and the start of this one [ns]';
COMMENT ON COLUMN nccl_kernels.lead_comm_ns IS 'Communication there in which no compute ran [ns]';
COMMENT ON COLUMN nccl_kernels.lead_copy_ns IS 'Copies there in which neither communication nor compute ran [ns]';
COMMENT ON COLUMN nccl_kernels.lead_idle_ns IS 'Time there in which nothing ran on the device [ns]';
COMMENT ON COLUMN nccl_kernels.lead_ops IS 'Compute operations that started between the starts of the previous operation of the communicator and of this one [1]';
COMMENT ON COLUMN nccl_kernels.lead_signature IS 'Sum of the hashes of their names: equal where the same operations ran [1]';

CREATE TABLE rank_timings (
    rank INTEGER NOT NULL,
    scope VARCHAR NOT NULL CHECK (scope IN ('capture', 'step')),
    step BIGINT,
    start_ns BIGINT NOT NULL,
    end_ns BIGINT NOT NULL,
    window_ns BIGINT NOT NULL,
    compute_ns BIGINT,
    comm_ns BIGINT,
    overlap_ns BIGINT,
    exposed_comm_ns BIGINT,
    copy_ns BIGINT,
    exposed_copy_ns BIGINT,
    idle_ns BIGINT,
    comm_fraction DOUBLE,
    exposed_comm_fraction DOUBLE,
    overlap_ratio DOUBLE,
    transfer_comm_ns BIGINT,
    transfer_overlap_ns BIGINT,
    transfer_overlap_ratio DOUBLE,
    reason VARCHAR
);
COMMENT ON TABLE rank_timings IS 'One row per rank and window: where the time of the window went';
COMMENT ON COLUMN rank_timings.rank IS 'Global rank [id]';
COMMENT ON COLUMN rank_timings.scope IS 'capture: first device start to last device end of the rank; step: one training step';
COMMENT ON COLUMN rank_timings.step IS 'Number of the step [id]; NULL for the capture';
COMMENT ON COLUMN rank_timings.start_ns IS 'Start of the window [ns]';
COMMENT ON COLUMN rank_timings.end_ns IS 'End of the window [ns]';
COMMENT ON COLUMN rank_timings.window_ns IS 'Length of the window [ns]';
COMMENT ON COLUMN rank_timings.compute_ns IS 'Union of compute intervals in the window [ns]';
COMMENT ON COLUMN rank_timings.comm_ns IS 'Union of communication intervals in the window [ns]';
COMMENT ON COLUMN rank_timings.overlap_ns IS 'Time in which communication and compute both ran [ns]';
COMMENT ON COLUMN rank_timings.exposed_comm_ns IS 'comm_ns - overlap_ns [ns]';
COMMENT ON COLUMN rank_timings.copy_ns IS 'Union of copy and set intervals in the window [ns]';
COMMENT ON COLUMN rank_timings.exposed_copy_ns IS 'Copy time in which neither communication nor compute ran [ns]';
COMMENT ON COLUMN rank_timings.idle_ns IS 'Time in which nothing ran on the device [ns]';
COMMENT ON COLUMN rank_timings.comm_fraction IS 'comm_ns / window_ns [1]';
COMMENT ON COLUMN rank_timings.exposed_comm_fraction IS 'exposed_comm_ns / window_ns [1]';
COMMENT ON COLUMN rank_timings.overlap_ratio IS 'overlap_ns / comm_ns [1]; NULL when there was no communication';
COMMENT ON COLUMN rank_timings.transfer_comm_ns IS 'Union of communication with every matched collective trimmed to its last transfer_ns [ns]; NULL without matched collectives';
COMMENT ON COLUMN rank_timings.transfer_overlap_ns IS 'Part of transfer_comm_ns in which compute ran [ns]; NULL without matched collectives';
COMMENT ON COLUMN rank_timings.transfer_overlap_ratio IS 'overlap_ratio of the trimmed communication: transfer_overlap_ns / transfer_comm_ns [1]; NULL without matched collectives';
COMMENT ON COLUMN rank_timings.reason IS 'Reason code of why parts of the window are unknown; NULL when none is';

CREATE TABLE communicators (
    comm_id VARCHAR PRIMARY KEY,
    name VARCHAR,
    description VARCHAR,
    group_size INTEGER,
    ranks INTEGER[],
    hosts INTEGER,
    link VARCHAR,
    peak_gbps DOUBLE,
    peak_source VARCHAR,
    calls BIGINT NOT NULL
);
COMMENT ON TABLE communicators IS 'One row per communicator';
COMMENT ON COLUMN communicators.comm_id IS 'Identity: process group name with ranks, the NCCL hash, or assumed where nothing tells it';
COMMENT ON COLUMN communicators.name IS 'Name of the process group; NULL when unknown';
COMMENT ON COLUMN communicators.description IS 'Description of the process group; NULL when unknown';
COMMENT ON COLUMN communicators.group_size IS 'Number of its ranks [1]; NULL when unknown';
COMMENT ON COLUMN communicators.ranks IS 'Its global ranks [id]; NULL when unknown';
COMMENT ON COLUMN communicators.hosts IS 'Number of hosts its ranks lie on [1]; NULL when unknown';
COMMENT ON COLUMN communicators.link IS 'Slowest link it must use: intra, inter or unknown';
COMMENT ON COLUMN communicators.peak_gbps IS 'Peak of that link per GPU and direction [GB/s]; NULL when unknown';
COMMENT ON COLUMN communicators.peak_source IS 'Where the peak is from: user, or the kind of link of the GPU model';
COMMENT ON COLUMN communicators.calls IS 'Operations seen on it, over all ranks [1]';

CREATE TABLE link_models (
    op VARCHAR NOT NULL,
    group_size INTEGER NOT NULL,
    link VARCHAR NOT NULL,
    points BIGINT NOT NULL,
    steps INTEGER NOT NULL,
    wire_share DOUBLE NOT NULL,
    alpha_us DOUBLE,
    beta_gbps DOUBLE,
    alpha_error DOUBLE,
    beta_error DOUBLE,
    spread DOUBLE NOT NULL
);
COMMENT ON TABLE link_models IS 'One row per operation, group size and link: time as latency and bandwidth, T = alpha * steps + wire_share * S / beta';
COMMENT ON COLUMN link_models.op IS 'Operation';
COMMENT ON COLUMN link_models.group_size IS 'Ranks of the communicator [1]';
COMMENT ON COLUMN link_models.link IS 'Slowest link the communicator must use';
COMMENT ON COLUMN link_models.points IS 'Collectives the fit is made from [1]';
COMMENT ON COLUMN link_models.steps IS 'Steps of the ring algorithm [1]';
COMMENT ON COLUMN link_models.wire_share IS 'Bytes each rank sends, as a share of S [1]';
COMMENT ON COLUMN link_models.alpha_us IS 'Latency of one step [us]; NULL when the sizes do not tell it';
COMMENT ON COLUMN link_models.beta_gbps IS 'Bandwidth [GB/s]; NULL when the sizes do not tell it';
COMMENT ON COLUMN link_models.alpha_error IS 'Relative standard error of alpha [1]';
COMMENT ON COLUMN link_models.beta_error IS 'Relative standard error of beta [1]';
COMMENT ON COLUMN link_models.spread IS 'Median relative distance of the times from the fit [1]';

CREATE TABLE baselines (
    file_name VARCHAR NOT NULL,
    op VARCHAR NOT NULL,
    group_size INTEGER NOT NULL,
    nodes INTEGER,
    bytes BIGINT NOT NULL,
    algbw_gbps DOUBLE NOT NULL,
    busbw_gbps DOUBLE NOT NULL
);
COMMENT ON TABLE baselines IS 'One row per size of a reference measurement with nccl-tests';
COMMENT ON COLUMN baselines.file_name IS 'Base name of its output, never its path';
COMMENT ON COLUMN baselines.op IS 'Operation';
COMMENT ON COLUMN baselines.group_size IS 'Ranks that took part [1]';
COMMENT ON COLUMN baselines.nodes IS 'Hosts they ran on [1]; NULL when unknown';
COMMENT ON COLUMN baselines.bytes IS 'Size S [bytes]';
COMMENT ON COLUMN baselines.algbw_gbps IS 'Algorithm bandwidth, the better of in place and out of place [GB/s]';
COMMENT ON COLUMN baselines.busbw_gbps IS 'Bus bandwidth of the same [GB/s]';

CREATE TABLE diagnostics (
    severity VARCHAR NOT NULL CHECK (severity IN ('info', 'warning', 'error')),
    code VARCHAR NOT NULL,
    source_id INTEGER,
    rank INTEGER,
    message VARCHAR NOT NULL,
    hint VARCHAR,
    count BIGINT
);
COMMENT ON TABLE diagnostics IS 'What was noticed about the data, and what to do about it';
COMMENT ON COLUMN diagnostics.severity IS 'error: numbers are missing; warning: numbers are limited; info: good to know';
COMMENT ON COLUMN diagnostics.code IS 'Stable code, listed in the documentation';
COMMENT ON COLUMN diagnostics.source_id IS 'Source it is about [id]; NULL for the whole run';
COMMENT ON COLUMN diagnostics.rank IS 'Rank it is about [id]; NULL for all';
COMMENT ON COLUMN diagnostics.message IS 'The finding in words';
COMMENT ON COLUMN diagnostics.hint IS 'What to do about it; NULL when nothing needs to be done';
COMMENT ON COLUMN diagnostics.count IS 'How many events it concerns [1]; NULL when not countable';
