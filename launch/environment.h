/* The environment variables of the ranks: to the library, they are all that tuttirun is. */
#ifndef LAUNCH_ENVIRONMENT_H
#define LAUNCH_ENVIRONMENT_H

#include "ranks.h"

#define SETTINGS_MAX 20

struct setting {
	const char *name, *text;
	char number[24];         /* what text is where the value is a number                */
};

/* The variables of the local-th rank, for its start or its restart. Returns how many. cores: a rank's, for
 * its threads; 0: not known here. */
int environment_of(struct setting settings[SETTINGS_MAX], const struct start *start, int local, int restart,
                   int cores);

#endif
