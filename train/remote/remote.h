/* Inside remote/: what its files know of each other. No other folder includes it.
 *
 *     remote.c         what an rpc has of ours, its functions and its end; parameters and their
 *                      locks; contexts
 *     remote_update.c  on a participant: sums of gradients, and its part of a step
 *     remote_step.c    the functions of rpc.h for parameters and contexts; a step, on the beginner
 *
 * The lock of struct remote guards its tables and all that has no other; it is held for moments,
 * and for allocations. A context's own lock is held while gradients are added, and comes before it.
 * Under either no call of the rpc is made but tutti_rpc_is_alive. */
#ifndef TRAIN_REMOTE_H
#define TRAIN_REMOTE_H

#include "train/base/base.h"
#include "train/precision/precision.h"

#include <tutti/rpc.h>

#include <pthread.h>

enum { REMOTE_NAME_BYTES = 63 };

struct remote_param {
	char name[REMOTE_NAME_BYTES + 1];
	float *values;
	size_t count;
	int group, flags;
	void (*release)(void *arg);
	void *release_arg;
	int kind;     /* tutti_optimizer_kind; -1: no step has named one */
	float *m, *v; /* NULL: there is none yet                         */
	uint64_t updates;
	int readers;       /* locks that are held                             */
	bool is_updated;   /* a step holds it                                 */
	int steps_waiting; /* new readers wait for these                      */
	bool is_removed;   /* freed with the last lock                        */
};

struct context_sum {
	bool is_there; /* something was added */
	float *values;
	size_t count;
};

/* On the beginner a context never CONTEXT_UPDATES, and on a participant it never CONTEXT_ENDS. */
enum context_state { CONTEXT_ADDS, CONTEXT_STEPS, CONTEXT_UPDATES, CONTEXT_ENDS };

/* A context on one rank: the sums, and on the beginner the participants. */
struct remote_context {
	uint64_t number;
	struct remote_context *next;
	int users;      /* threads that look at it; is_gone and 0: it is freed */
	bool is_gone;   /* in no list any more                                */
	bool is_joined; /* the beginner knows of this rank                    */
	enum context_state state;
	pthread_mutex_t lock;
	struct context_sum *sums; /* by parameter; under lock while the state is ADDS */
	int num_sums;
	/* On the beginner: */
	bool is_begun;
	bool is_busy;            /* a thread steps or ends it */
	uint8_t *is_participant; /* of each rank      */
};

struct remote {
	tutti_rpc *rpc;
	int rank, size;
	pthread_mutex_t lock;
	pthread_mutex_t registering;
	size_t num_registered;        /* functions; under registering */
	pthread_cond_t unlocked;      /* a parameter */
	struct remote_param **params; /* by number; NULL: removed */
	int num_params;
	struct remote_context *contexts;
	int begun;     /* contexts that were begun here and have not ended */
	uint64_t last; /* contexts begun ever                             */
	uint64_t salt;
};

/* remote.c */
/* NULL: *status is MEMORY or INVALID. */
struct remote *remote_of(tutti_rpc *rpc, const char *call, tutti_status *status);
/* Contexts that this rank knows: for tests. */
int remote_context_count(tutti_rpc *rpc);

/* Parameters: under the lock. */
/* NULL: there is none. */
struct remote_param *remote_param_of(const struct remote *remote, int number);
tutti_status remote_param_unknown(const struct remote *remote, const char *call, int number);
/* INVALID: there is one of the name. MEMORY. */
tutti_status remote_params_insert(struct remote *remote, struct remote_param *made, int *number);
/* A parameter that is removed and not locked leaves the table, and is the caller's to end; else
 * NULL. */
struct remote_param *remote_params_look(struct remote *remote, int number);
/* Without the lock: calls release, and frees it. NULL is fine. */
void remote_param_end(struct remote_param *param);

/* Locks of parameters: all at once. timeout_ms <= 0: no limit. TIMEOUT, INVALID. Without the lock. */
tutti_status param_locks_take(struct remote *remote, const int *numbers, int count, bool updates,
			      int timeout_ms);
tutti_status param_locks_drop(struct remote *remote, const int *numbers, int count, bool updates);

/* Contexts: without the lock, where not said otherwise. */
int context_beginner(uint64_t number);
/* One more user; NULL: there is none. */
struct remote_context *context_find(struct remote *remote, uint64_t number);
/* One more user, and the beginner knows of this rank. */
tutti_status context_enter(struct remote *remote, uint64_t number, struct remote_context **context);
void context_leave(struct remote *remote, struct remote_context *context);
tutti_status context_make(struct remote *remote, uint64_t number, bool is_begun,
			  struct remote_context **context); /* under the lock; no user */
void context_remove(struct remote *remote, struct remote_context *context); /* under the lock */
/* INVALID: there is no such context, and why. */
tutti_status context_unknown(const char *call, uint64_t number, const char *why);

/* A step's request to a participant; the groups follow. */
struct step_order {
	uint64_t context;
	int32_t num_groups;
	float scale;
};
/* Its first answer. */
struct step_measure {
	struct exact_sum squares;
	int32_t bad_param; /* whose name follows; -1: all is finite */
	uint32_t reserved;
	char bad_name[REMOTE_NAME_BYTES + 1];
};

/* remote_update.c */
tutti_status update_measure(struct remote *remote, const struct step_order *order,
			    const tutti_optimizer *groups, struct step_measure *measure);
/* timeout_ms <= 0: no limit. */
tutti_status update_apply(struct remote *remote, const struct step_order *order,
			  const tutti_optimizer *groups, int timeout_ms);
tutti_status update_on_measure(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply);
tutti_status update_on_apply(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply);

#endif
