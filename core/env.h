/* Every TUTTI_ environment variable: one typed table. A variable that is not in it, or a value out
 * of range, is an error at init with a suggestion. Read once per tutti_init, never later. A test
 * compares the table, and its help, with docs/environment.md. */
#ifndef CORE_ENV_H
#define CORE_ENV_H

#include <tutti/tutti.h>

#include <stdint.h>

/*      field          variable                   unit     min  max          default  help  */
#define ENV_NUMBERS(X)                                                                             \
	X(timeout_ms, "TUTTI_TIMEOUT_MS", "ms", 1, 86400000, 300000,                               \
	  "deadline of every wait, where the call and the config name none")                       \
	X(silence_ms, "TUTTI_SILENCE_MS", "ms", 0, 86400000, 30000,                                \
	  "a rank that is stopped or silent for so long, while others wait, has failed; 0: never") \
	X(port, "TUTTI_PORT", "port", 0, 65535, 0,                                                 \
	  "where rank 0 serves the store when the launcher owns MASTER_PORT; 0: probed")           \
	X(restarted, "TUTTI_RESTARTED", "restarts", 0, 1000000, 0,                                 \
	  "not 0: this process joins a job that runs, when its ranks call tutti_comm_grow")        \
	X(max_restarts, "TUTTI_MAX_RESTARTS", "restarts", 0, 1000000, 0,                           \
	  "how many failed ranks are started again; 0: tutti_recover waits for none")              \
	X(local_ranks, "TUTTI_LOCAL_RANKS", "ranks", 0, 65536, 0,                                  \
	  "how many ranks a process makes, as config.local_ranks must say; 0: it says it alone")   \
	X(insecure, "TUTTI_INSECURE", "0 or 1", 0, 1, 0,                                           \
	  "1: join across machines without a secret")                                              \
	X(window, "TUTTI_WINDOW", "0 or 1", 0, 1, 1,                                               \
	  "0: ranks of a node use messages instead of shared memory windows")                      \
	X(huge_pages, "TUTTI_HUGE_PAGES", "0 or 1", 0, 1, 1,                                       \
	  "0: tutti_mem_alloc takes 2 MiB pages only where the system gives them by itself")       \
	X(spread, "TUTTI_SPREAD", "0 or 1", 0, 1, 1,                                               \
	  "0: it is left to the kernel where each rank runs")                                      \
	X(read, "TUTTI_READ", "bytes", 0, 1099511627776, 131072,                                   \
	  "from this on, two ranks that only copy read each other's buffers; 0: never")            \
	X(window_bytes, "TUTTI_WINDOW_BYTES", "bytes", 65536, 1073741824, 8388608,                 \
	  "shared staging memory of each rank")                                                    \
	X(scratch_bytes, "TUTTI_SCRATCH_BYTES", "bytes", 65536, 1073741824, 4194304,               \
	  "private memory of each rank for messages on their way")                                 \
	X(slice_bytes, "TUTTI_SLICE_BYTES", "bytes", 64, 67108864, 262144,                         \
	  "the longest piece a message is cut into")                                               \
	X(checksum, "TUTTI_CHECKSUM", "0 or 1", 0, 1, 0,                                           \
	  "1: messages over tcp carry a CRC-32C of their bytes")                                   \
	X(tls, "TUTTI_TLS", "0 or 1", 0, 1, 0,                                                     \
	  "1: all bytes over tcp are encrypted, by TLS 1.3")                                       \
	X(reconnect, "TUTTI_RECONNECT", "0 to 2", 0, 2, 1,                                         \
	  "a broken tcp connection is made again, 1: not on loopback, 2: always; 0: never")        \
	X(reconnect_ms, "TUTTI_RECONNECT_MS", "ms", 100, 86400000, 10000,                          \
	  "for how long that is tried")                                                            \
	X(reconnect_tries, "TUTTI_RECONNECT_TRIES", "attempts", 1, 1000000, 1000,                  \
	  "and how often")                                                                         \
	X(cuda, "TUTTI_CUDA", "0 to 2", 0, 2, 2,                                                   \
	  "1: device buffers go by the engine alone; 0: there are none")                           \
	X(dma_buf, "TUTTI_DMA_BUF", "0 or 1", 0, 1, 1,                                             \
	  "0: RDMA adapters do not reach memory of GPUs; it goes through host memory")             \
	X(cuda_ipc, "TUTTI_CUDA_IPC", "0 or 1", 0, 1, 1,                                           \
	  "0: processes that share a GPU open no buffers of each other")                           \
	X(verbs_gid, "TUTTI_VERBS_GID", "index", 0, 255, 255,                                      \
	  "the GID of RDMA ports; 255: RoCE v2 and IPv4 where there is")

#define ENV_TEXTS(X)                                                                               \
	X(simd, "TUTTI_SIMD", "base|avx2|avx512|avx512_bf16|avx512_fp16",                          \
	  "vector instructions of reductions and of training; default: the latest of the CPU")     \
	X(log, "TUTTI_LOG", "off|info|debug",                                                      \
	  "what is written to stderr; by itself waits that last and errors that no call returns")  \
	X(secret, "TUTTI_SECRET", "", "the job's secret")                                          \
	X(secret_file, "TUTTI_SECRET_FILE", "", "a file with the job's secret")                    \
	X(transports, "TUTTI_TRANSPORTS", "", "shm,tcp: only these; ^shm: all but these")          \
	X(transport_plugin, "TUTTI_TRANSPORT_PLUGIN", "", "a shared object with one more")         \
	X(algo, "TUTTI_ALGO", "", "all_reduce:64K-1M=ring,broadcast=direct")                       \
	X(links, "TUTTI_LINKS", "", "a file that keeps the measured speeds of links")              \
	X(trace_dir, "TUTTI_TRACE_DIR", "",                                                        \
	  "a folder for the traces of ranks whose communicator failed")                            \
	X(host_id, "TUTTI_HOST_ID", "", "ranks with the same text count as one machine")           \
	X(address, "TUTTI_ADDRESS", "", "the local address that peers connect to")                 \
	X(mesh, "TUTTI_MESH", "", "dp=2,tp=4: the axes of a mesh that the program gives none")     \
	X(verbs_devices, "TUTTI_VERBS_DEVICES", "",                                                \
	  "mlx5_0,mlx5_1:2: only these RDMA devices, or ports of them")

struct env {
#define FIELD(field, name, unit, min, max, init, help) int64_t field;
	ENV_NUMBERS(FIELD)
#undef FIELD
#define FIELD(field, name, choices, help) const char *field;   /* NULL: not set; getenv's memory */
	ENV_TEXTS(FIELD)
#undef FIELD
};

/* Reads and checks the whole environment. Bytes take K, M, G. INVALID with a message otherwise. */
tutti_status env_load(struct env *env);

#endif
