/* The helper, the process's one thread that moves asynchronous works along while no thread waits
 * for them: its engines, and its loop. The rest of the library sees task.h only. */
#ifndef COLLECTIVES_ENGINE_HELPER_H
#define COLLECTIVES_ENGINE_HELPER_H

#include "collectives/engine/engine_internal.h"

/* helper_list.c: the engines that the helper serves. */
void helper_list_add(struct engine *e);
bool helper_list_has(const struct engine *e);
bool helper_list_is_empty(void);
/* Returns when the helper is not at e any more, and e has no asynchronous works. */
bool helper_list_remove(struct engine *e); /* as helper_detach */
/* Calls visit for every engine for which is_one is true, without the lock of the list. Returns how
 * many. */
int helper_for_each(bool (*is_one)(struct engine *e), void (*visit)(struct engine *e, void *arg),
		    void *arg);

/* replays.c: engines with captured calls, and a look at one. */
bool helper_has_replays(struct engine *e);
void helper_look_at_replays(struct engine *e, void *arg);

/* helper_loop.c: the thread; wake_fd points to what wakes it. It ends soon after
 * helper_loop_stop(true). */
void *helper_loop(void *wake_fd);
void helper_loop_stop(bool stops);

#endif
