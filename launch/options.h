/* tuttirun's command line. */
#ifndef LAUNCH_OPTIONS_H
#define LAUNCH_OPTIONS_H

#define RANKS_MAX 4096 /* on one node */

struct options {
	int ranks;               /* -n: on this node                                          */
	int nodes, node_rank;    /* one node unless --nnodes                                  */
	const char *master_host; /* --master; NULL: this machine                              */
	int master_port;         /* 0: the first free one                                     */
	double timeout_s;        /* 0 if there is none                                        */
	int max_restarts;        /* of failed ranks, on this node, all together               */
	int prefix;              /* lines start with "[rank] "                                */
	char **program;          /* argv of the ranks, NULL-terminated                        */
};

/* Returns -1 when the job shall run, else the exit code: 0 after --help, 2 after a bad line, which
 * was then explained on stderr. */
int options_parse(struct options *options, int argc, char **argv);
/* Whether the environment has one for the job, or the name of a file with one. */
int options_have_secret(void);

#endif
