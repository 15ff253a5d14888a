/* Traces that were read, in plain numbers and words: of this process, of another one's page, or of
 * a file. A reader checks everything: it may be damaged, or made up. */
#ifndef COLLECTIVES_TRACE_TRACE_LOG_H
#define COLLECTIVES_TRACE_TRACE_LOG_H

#include "collectives/trace/trace.h"

#include <stdio.h>

#define TRACE_UNKNOWN INT64_MIN /* a time that was not taken */

/* The largest clock (nine years) and date (2096) that are accepted, in ns: sums of them fit. */
#define TRACE_NS_MOST   (UINT64_C(1) << 58)
#define TRACE_DATE_MOST UINT64_C(4000000000000000000)

enum trace_state { TRACE_STATE_RUNS, TRACE_STATE_DONE, TRACE_STATE_FAILED, TRACE_STATES };
extern const char *const trace_state_names[TRACE_STATES]; /* "under way", "done", "failed" */

/* An operation. Texts are printable, without quotes and backslashes. */
struct trace_op {
	uint64_t index;    /* among the communicator's operations                            */
	int64_t sequence;  /* among its collectives; -1 for a message                       */
	char name[20], dtype[12], algorithm[20];
	char label[56]; /* what it is for; "": its caller did not say                   */
	uint64_t count, bytes; /* as the API counts them                                     */
	int peer;          /* of a message; or the root; or -1                              */
	enum trace_state state;
	bool is_async, is_grouped;
	int64_t last_by_ns; /* merge: it came so long after all other ranks; else 0         */
	/* When it can have begun; the same where a clock was read. */
	int64_t earliest_ns, latest_ns;
	/* CLOCK_MONOTONIC of its host. end: UNKNOWN while it runs, or where it was over at once. */
	int64_t begin_ns, end_ns;
};

/* A communicator of one rank. */
struct trace_comm {
	uint64_t name;
	int rank, size, node_rank, num_nodes;
	char way[40], title[32]; /* title: config.name, or ""                               */
	int status; /* tutti_status: the sticky failure                               */
	uint64_t issued;
	uint64_t waits_index; /* the operation that has told what it waits for ...              */
	int waits_rank;       /* ... a rank of it, or -1 ...                                */
	char waits[232];      /* ... in words; "": no operation has told                    */
	struct trace_op *ops; /* in their order                                             */
	size_t op_count;
};

struct trace_process {
	int pid;
	char host[64], boot[40], library[16];
	int64_t start_ns, real_ns; /* one moment on the host's monotonic clock and by the date */
	int64_t now_ns;            /* when it was read                                           */
	int64_t shift_ns;          /* what to add for a time line common to several hosts        */
	int host_number;           /* merge: processes with the same one have one clock          */
	struct trace_comm *comms;
	size_t comm_count;
};

/* Adds what is on a page of so many bytes. MEMORY; UNSUPPORTED: of another version; INVALID: no
 * page. In the last two cases the last error is a message that begins with who, such as "process
 * 123". */
tutti_status trace_read(struct trace_process *process, const struct trace_page *page, size_t bytes,
			const char *who);
/* Reads the trace of this process. */
tutti_status trace_read_own(struct trace_process *process);
void trace_process_free(struct trace_process *process); /* what it has, not itself */
/* Keeps what may stand in a JSON string as it is. */
void trace_clean(char *text, size_t bytes);

/* The pages of this process, which stay while visit is called. */
void trace_each_page(void (*visit)(void *arg, const struct trace_page *page), void *arg);

/* As JSON of the Trace Event Format (chrome://tracing, Perfetto), with all that merge needs. */
void trace_write(FILE *file, const struct trace_process *processes, size_t count);

/* trace_file.c: the same into a file, which is there whole or as it was. A link is followed; a
 * device or a pipe is written to as it is, and a pipe's reader is waited for. SYSTEM, INVALID. */
tutti_status trace_write_file(const char *path, const struct trace_process *processes,
			      size_t count);

#endif
