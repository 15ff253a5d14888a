/* The choice when a rank has failed: which ranks are started again. */
#ifndef LAUNCH_RESTART_H
#define LAUNCH_RESTART_H

#include "ranks.h"

enum answer {
	ANSWER_END,      /* the job                                                         */
	ANSWER_ALONE,    /* that rank is started again                                      */
	ANSWER_ALL,      /* all are                                                         */
	ANSWER_ALL_TOO,  /* all are, as part of the last restart, which no rank took in     */
};

/* used: restarts that there have been. */
enum answer restart_answer(const struct ranks *ranks, const struct rank *failed,
                           const struct options *options, int used);
/* Whether all are started again when no rank calls tutti_comm_grow. */
bool restart_falls_back(const struct ranks *ranks, const struct options *options);

#endif
