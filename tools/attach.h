/* Looks at running processes from outside: finds the pages of their traces and reads them. The
 * processes do nothing for that, and do not notice it. */
#ifndef TOOLS_ATTACH_H
#define TOOLS_ATTACH_H

#include "collectives/trace/trace_log.h"

/* The exit codes of a tool. */
enum attach_code {
	ATTACH_OK = 0,
	ATTACH_FAILED = 1,  /* anything else: a damaged trace, no memory            */
	ATTACH_USAGE = 2,   /* the command line                                     */
	ATTACH_NOBODY = 3,  /* there is no such process                             */
	ATTACH_NO_TUTTI = 4, /* it has no communicator                               */
	ATTACH_REFUSED = 5, /* it may not be looked at                              */
	ATTACH_VERSION = 6, /* its Tutti is another one                             */
};

/* Processes whose traces were read. */
struct log {
	struct trace_process *processes;
	size_t count;
};

/* The log owns what process has from then on. */
void log_add(struct log *log, const struct trace_process *process);
void log_free(struct log *log);

/* Reads what process pid has. Else *why has a message. */
enum attach_code attach_read(int pid, struct trace_process *process, char *why, size_t why_bytes);
/* Adds what the processes with these numbers have. The first that cannot be read is the code; says_why: with a
 * message for each. */
enum attach_code attach_all(struct log *log, char *const *pids, int count, bool says_why);

#define ATTACH_OP_BYTES 48
/* An operation in words: "all_reduce #5", "send to 3"; "-" for NULL. */
void attach_op_name(const struct trace_op *op, char text[ATTACH_OP_BYTES]);

#endif
