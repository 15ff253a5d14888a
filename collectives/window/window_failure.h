/* What can end a run badly. */
#ifndef COLLECTIVES_WINDOW_WINDOW_FAILURE_H
#define COLLECTIVES_WINDOW_WINDOW_FAILURE_H

#include "collectives/window/window_internal.h"

/* From now on all calls fail with status and last_error, unless they do already. OK: nothing. */
void failure_keep(struct window *window, tutti_status status);
/* MISMATCH: the line of peer disagrees with this rank's. */
tutti_status failure_mismatch(struct window *window, const struct window_run *run, int peer);
tutti_status failure_timeout(const struct window *window, const struct window_run *run,
			     uint64_t timeout_ns);
/* What can end a run that does not move, apart from its deadline. OK: nothing. */
tutti_status failure_check(struct window *window, const struct window_run *run, uint64_t now_ns);
/* This rank's call in words. Returns text. */
const char *failure_call_text(const struct window *window, const struct window_run *run, char *text,
			      size_t text_bytes);

#endif
