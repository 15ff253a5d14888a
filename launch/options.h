/* tuttirun's command line. */
#ifndef LAUNCH_OPTIONS_H
#define LAUNCH_OPTIONS_H

#include "parallel/mesh/axes.h"

#define RANKS_MAX 4096 /* on one node */

/* Of ranks that have failed: those alone, or with all others. BY_NEED: alone, as long as a rank may call
 * tutti_comm_grow. */
enum restart { RESTART_BY_NEED, RESTART_RANK, RESTART_JOB };
enum bind_to { BIND_DEFAULT, BIND_CORE, BIND_NUMA, BIND_NONE };

struct options {
	int ranks;               /* -n: on this node                                          */
	int nodes, node_rank;    /* one node unless --nnodes                                  */
	const char *master_host; /* --master; NULL: this machine                              */
	int master_port;         /* 0: the first free one                                     */
	const char *trace_dir;   /* --trace-dir, or NULL                                      */
	double timeout_s;        /* 0 if there is none                                        */
	int max_restarts;        /* of failed ranks, on this node, all together               */
	enum restart restart;
	enum bind_to bind_to;    /* BIND_DEFAULT: to cores, where there is hwloc               */
	int report_bindings;     /* a line a rank                                             */
	const char *mesh;        /* "dp=2,tp=4", or NULL                                     */
	struct axes axes;        /* mesh, for the ranks of all nodes                          */
	int prefix;              /* lines start with "[rank] "                                */
	char **program;          /* argv of the ranks, NULL-terminated                        */
};

/* Returns -1 when the job shall run, else the exit code: 0 after --help, 2 after a bad line, which
 * was then explained on stderr. */
int options_parse(struct options *options, int argc, char **argv);
/* Whether the environment has one for the job, or the name of a file with one. */
int options_have_secret(void);

#endif
