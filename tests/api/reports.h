/* Datagrams between the ranks of a job on this machine, beside its communicator: they arrive when
 * that has failed, too. */
#ifndef TESTS_API_REPORTS_H
#define TESTS_API_REPORTS_H

#include "api.h"

/* Collective: opens this rank's socket. Returns when all ranks have ended a barrier of the
 * communicator and will not need it any more: a failure that any of them causes from here on,
 * however early, cannot reach another rank in that barrier. */
int reports_open(struct api *api);
void reports_send(struct api *api, int fd, int to, tutti_status status);
/* Waits for n reports; whether any of them is wanted. */
bool reports_any(struct api *api, int fd, int n, tutti_status wanted);

#endif
