/* tuttirun's command line. */
#ifndef LAUNCH_OPTIONS_H
#define LAUNCH_OPTIONS_H

#include "train/mesh/axes.h"
#include "core/program/line.h"
#include "core/rank/variables.h"

#include <stdbool.h>

#define DEVICES_BYTES 1024

/* Of ranks that have failed: those alone, or with all others. BY_NEED: alone, as long as a rank may call
 * tutti_comm_grow. */
enum restart { RESTART_BY_NEED, RESTART_RANK, RESTART_JOB };
enum bind_to { BIND_DEFAULT, BIND_CORE, BIND_NUMA, BIND_NONE };

struct options {
	int ranks;               /* -n: on each node                                          */
	const char *automatic;   /* the word that was given for it, or NULL                   */
	int nodes, node_rank;    /* one node unless --nnodes or --hosts                       */
	const char *master_host; /* --master; NULL: this machine                              */
	char master_text[256];   /* where master_host may be                                  */
	int master_port;         /* 0: any on one machine, 29500 on several                   */
	bool has_master, has_port; /* they were given                                         */
	const char *hosts, *hostfile, *ssh; /* NULL: not given                                */
	bool is_agent;           /* started by another tuttirun: agent.h                      */
	const char *trace_dir;   /* --trace-dir, or NULL                                      */
	const char *log_dir;     /* --log-dir, or NULL                                        */
	double timeout_s;        /* 0 if there is none                                        */
	int max_restarts;        /* of failed ranks, on this node, all together               */
	enum restart restart;
	enum bind_to bind_to;    /* BIND_DEFAULT: to cores, where there is hwloc               */
	int report_bindings;     /* a line a rank                                             */
	const char *mesh;        /* "dp=2,tp=4", or NULL                                     */
	struct axes axes;        /* mesh, for the ranks of all nodes                          */
	int local_ranks;         /* --local-ranks: that each process makes; 0: not said       */
	int prefix;              /* lines start with "[rank] "                                */
	int progress;
	int dry_run, explain;    /* explain: a dry run that prints the ranks' numbers         */
	char devices[DEVICES_BYTES]; /* for CUDA_VISIBLE_DEVICES; "": as it is                */
	char **given;            /* the words of the options, as they were given              */
	int given_words;
	char **program;          /* argv of the ranks, NULL-terminated                        */
};

/* Returns -1 when the job shall run, else the exit code: 0 after --help, 2 after a bad line, which
 * was then explained on stderr. */
int options_parse(struct options *options, int argc, char **argv);
/* Checks of options that need each other; with --hosts again once the machines are known. Returns as
 * options_parse. */
int options_check(struct options *options);
#define WORLD_MAX 65536 /* ranks of a job, as core/join/launcher.h has it */
/* Ranks of the job's communicator: of all processes. */
int options_size(const struct options *options);
/* Whether the ranks are started on the machines of a list, by a tuttirun on each. */
bool options_start_hosts(const struct options *options);
/* Whether one that fails there ends the ranks of all machines, to be started again. */
bool options_restart_hosts(const struct options *options);
/* Whether the environment has one for the job, or the name of a file with one. */
int options_have_secret(void);

#endif
