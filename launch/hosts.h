/* The machines of --hosts or --hostfile, and how a tuttirun is started on each. */
#ifndef LAUNCH_HOSTS_H
#define LAUNCH_HOSTS_H

#include "file_input.h"
#include "options.h"

#include <limits.h>

#define HOSTS_MAX 4096

struct hosts {
	int n;
	char **name;              /* as given; user@host is fine                             */
	char own_name[256];       /* of this machine                                         */
	char path[PATH_MAX];      /* of this program: the same on all machines               */
	char command[2 * PATH_MAX]; /* for ssh: to be read by a shell                        */
	char *ssh;                /* cut into words                                          */
	char **words;             /* of the command of one machine, NULL-terminated          */
	struct file_input input;  /* for the first machine, which has rank 0                 */
	bool are_again;           /* all are started again                                   */
	double left_s;            /* of --timeout, when they are started; 0: there is none   */
	const struct options *options; /* of the job                                         */
};

/* A job whose time is over first says which calls hang: two looks (hangs.c), and a grace. Longer than that its
 * hosts are not waited for. */
#define HOSTS_SLACK_S 30

/* Reads the list, and completes the options: ranks, nodes, master_host. Returns 0, or the exit code after
 * a message on stderr. */
int hosts_find(struct hosts *hosts, struct options *options);
/* The command that starts the tuttirun of a machine. Valid until the next one is asked for. */
char **hosts_command(struct hosts *hosts, int host);
void hosts_free(struct hosts *hosts);

#endif
