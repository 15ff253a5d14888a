/* The traces of several ranks together. */
#ifndef TUTTI_TRACE_MERGE_H
#define TUTTI_TRACE_MERGE_H

#include "arguments.h"

#include "collectives/trace/trace_log.h"

struct log {
	struct trace_process *processes;
	size_t count;
};

/* meetings.c. The log owns what process has from then on. False: no memory, and the caller keeps it. */
bool log_add(struct log *log, const struct trace_process *process);
void log_free(struct log *log);

/* load.c: adds what is in a file that trace_write has written. False: why has a message. */
bool load(struct log *log, const char *path, char *why, size_t why_bytes);
bool load_text(struct log *log, const char *text, char *why, size_t why_bytes);

/* One rank's part in one collective. */
struct part {
	const struct trace_process *process;
	const struct trace_comm *comm;
	struct trace_op *op;
};

/* All parts of all collectives, those of one together, in the order of their numbers. */
struct parts {
	struct part *part;
	size_t count;
	int hosts; /* processes' hosts have numbers below */
};

/* False: no memory. */
bool parts_find(struct parts *parts, struct log *log);
void parts_free(struct parts *parts);
/* Where the collective that begins at i ends: one behind its last part. */
size_t parts_end(const struct parts *parts, size_t i);

/* clocks.c: sets every process's shift_ns, and reports how. False: no memory. */
bool clocks_align(struct log *log, const struct parts *parts, FILE *report);

/* Whether no rank gets out of it before all are in it. */
bool meets_all(const struct trace_op *op);

/* late.c: which rank came last. False: no memory. */
bool late_report(const struct log *log, const struct parts *parts, bool all, FILE *report);

/* The verbs; what they return is the exit code. */
int dump(const struct arguments *arguments);
int merge(const struct arguments *arguments);
/* dump.c: to where the arguments say. */
int write_out(const struct arguments *arguments, const struct log *log);

#endif
