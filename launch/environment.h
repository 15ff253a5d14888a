/* The environment variables of the ranks: to the library, they are all that tuttirun is. */
#ifndef LAUNCH_ENVIRONMENT_H
#define LAUNCH_ENVIRONMENT_H

#include "ranks.h"

#include "core/rank/variables.h"

#define SETTINGS_MAX (VARIABLES_MAX + 6)

/* The variables of the local-th rank, for its start or its restart. Returns how many. cores: a rank's, for
 * its threads; 0: not known here. */
int environment_of(struct setting settings[SETTINGS_MAX], const struct start *start, int local, int restart,
                   int cores);

#endif
