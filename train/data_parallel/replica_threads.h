/* Threads that compute replicas: one for each but the first, which computes in the caller's. */
#ifndef TRAIN_REPLICA_THREADS_H
#define TRAIN_REPLICA_THREADS_H

#include <tutti/tutti.h>

struct replica_threads;

/* A turn's work for one replica. */
typedef void (*replica_task)(void *arg, int replica);

/* Starts count - 1 threads. MEMORY; SYSTEM: a thread cannot be started, and none is left. */
tutti_status replica_threads_create(struct replica_threads **threads, int count);
/* One turn: the task for replicas 0 to count - 1 at once, 0 in this thread. Returns when all have
 * returned: what the tasks did is visible then. One turn at a time. There is no deadline, because a
 * task that still runs uses the caller's memory, and a thread cannot be ended from outside: the
 * task's own waits have deadlines. Allocates nothing. */
void replica_threads_run(struct replica_threads *threads, replica_task task, void *arg);
/* Ends the threads; NULL is allowed. */
void replica_threads_destroy(struct replica_threads *threads);

#endif
