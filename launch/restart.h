/* The choice when a rank has failed: which ranks are started again. */
#ifndef LAUNCH_RESTART_H
#define LAUNCH_RESTART_H

#include "ranks.h"

enum answer {
	ANSWER_END,      /* the job                                                         */
	ANSWER_ALONE,    /* that rank is started again                                      */
	ANSWER_ALL,      /* all are                                                         */
	ANSWER_ALL_TOO,  /* all are, as one restart with those that no rank has taken in    */
};

/* used: restarts that there have been. */
enum answer restart_answer(const struct ranks *ranks, const struct rank *failed,
                           const struct options *options, int used);
/* Ranks that were started again, since when no rank has called tutti_comm_grow. */
int restart_waiting(const struct ranks *ranks);
/* Whether all are started again because no rank can take the others in. */
bool restart_none_left(const struct ranks *ranks, const struct options *options);
/* Whether all are started again when no rank calls tutti_comm_grow. */
bool restart_falls_back(const struct ranks *ranks, const struct options *options);

#endif
