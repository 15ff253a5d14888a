/* The helper, the process's one thread that moves asynchronous works along while no thread waits
 * for them. */
#ifndef COLLECTIVES_ENGINE_HELPER_H
#define COLLECTIVES_ENGINE_HELPER_H

#include "collectives/engine/engine_internal.h"

/* helper.c */
tutti_status helper_attach(struct engine *e);
/* Returns when the helper thread no longer uses e. False: no callback has returned for
 * engine_give_up_ms. */
bool helper_detach(struct engine *e);
/* False: it does not help e. Else it cleans e up, soon. */
bool helper_clean(struct engine *e);
/* The callback that the helper thread is in, as callback_now; NULL: none. While an engine is
 * attached: without one the thread may end meanwhile. */
const char *helper_callback(void);

/* helper_wake.c */
void helper_wake(void);
/* Works of e are in flight that no thread waits for. Where threads have always come soon, and
 * is_urgent is false, the helper sees them at its next look, 1 ms later at the most. */
void helper_call_for(struct engine *e, bool is_urgent);
/* A thread has come to wait for work. */
void helper_note_wait(const struct tutti_work *work, struct engine *e);
/* Whether asynchronous works are in flight. */
bool helper_has_works(struct engine *e);

/* The same, for the helper thread. */
int helper_wake_open(void); /* the descriptor to sleep on, or -1 with errno */
void helper_wake_close(void);
enum helper_state { HELPER_AWAKE, HELPER_NAPS, HELPER_SLEEPS };
/* The helper is about to nap or sleep, or awake. Returns whether it was reminded meanwhile. */
bool helper_wake_set_state(enum helper_state state);
bool helper_wake_was_used(void); /* whether it was reminded since it last asked */
/* Whether the helper is to make progress: no thread does, or will do soon. */
bool helper_is_needed(struct engine *e);

#endif
