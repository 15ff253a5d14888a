/* Where the ranks of a job meet and by what they know each other: an address, a port, a secret. */
#ifndef LAUNCH_MEETING_H
#define LAUNCH_MEETING_H

#include "options.h"

#include "core/rank/fresh.h"

struct meeting {
	const char *host;
	int port;
	bool is_chosen;       /* the port of --hosts, without knowing whether it is free there:
	                         rank 0 serves at the next free one above, and the others look there */
	struct fresh_port reserved; /* the port, held while the job runs; or none, if it is not ours */
	char secret[FRESH_SECRET_BYTES]; /* "": the user's own, in the environment already        */
};

/* Returns 0, or the exit code after a message on stderr. */
int meeting_prepare(struct meeting *meeting, const struct options *options);
/* Another port and secret where they are ours: what is left of a job that was ended cannot disturb the one
 * that is started in its place. */
int meeting_renew(struct meeting *meeting);

#endif
