/* The traces of several ranks together. */
#ifndef TUTTI_TRACE_MERGE_H
#define TUTTI_TRACE_MERGE_H

#include "tools/attach.h"

/* parse.c: adds what is in a file that trace_write has written. False: why has a message. */
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

/* clocks.c */
void parts_find(struct parts *parts, struct log *log);
void parts_free(struct parts *parts);
/* Where the collective that begins at i ends: one behind its last part. */
size_t parts_end(const struct parts *parts, size_t i);

/* clocks.c: sets every process's shift_ns, and reports how. */
void clocks_align(struct log *log, const struct parts *parts, FILE *report);

/* Whether no rank gets out of it before all are in it. */
bool meets_all(const struct trace_op *op);

/* late.c: which rank came last. */
void late_report(const struct log *log, const struct parts *parts, bool all, FILE *report);

/* tutti-trace's command line. */
struct arguments {
	bool merges, calls; /* else it dumps                             */
	const char *output; /* NULL: stdout                              */
	bool all;           /* merge: every collective in the report    */
	char **words;       /* processes or files                        */
	int word_count;
};

/* The verbs; what they return is the exit code. */
int trace_dump(const struct arguments *arguments);
int trace_calls(const struct arguments *arguments);
int trace_merge(const struct arguments *arguments);

#endif
