/* Streams: queues of tasks, each with a thread that runs them in order. */
#ifndef TESTS_CUDA_STREAM_H
#define TESTS_CUDA_STREAM_H

#include "tests/cuda/driver/op.h"

#include <time.h>

/* An operation in a stream. Each holder may wait for its end. */
struct task {
	struct op op;
	struct task *next;
	int holders;
	bool is_done;
	pthread_cond_t done;   /* is_done was set */
	struct timespec ended; /* CLOCK_MONOTONIC */
	size_t n_after;
	struct task **after; /* of other streams, that end first */
};

struct CUstream_st {
	CUcontext context;
	CUstream next; /* of the context's streams */
	unsigned flags;
	bool has_thread, is_destroyed;
	pthread_cond_t added; /* a task, to the idle stream */
	unsigned connection;  /* see share_connection() in stream.c */
	unsigned branch;      /* of a graph, by number */
	struct task *head, *tail;
	struct capture *capture; /* see capture.h */
	size_t n_last;           /* the nodes that the next one of this stream comes after */
	CUgraphNode *last;
};

/* All with the lock. */
CUstream stream_create(CUcontext context, unsigned flags);
void stream_destroy(CUstream stream); /* when what is in it has ended */
/* A stream for a branch of a graph. It takes its connection from the stream of the launch: the first
 * branch the same, the others the next ones. */
CUstream stream_create_branch(CUcontext context, unsigned branch);
void stream_join_connection(CUstream branch, const struct CUstream_st *launch);

/* Enqueues the operation, which the task owns from now on. after: NULL, or a further task that ends
 * before it begins. The task lives until it has ended, unless it is held. */
struct task *stream_add(CUstream stream, const struct op *op, struct task *after);
struct task *task_hold(struct task *task);
void task_drop(struct task *task); /* takes NULL */
void task_wait(struct task *task);
void task_after(struct task *task, struct task *other);

/* Without the lock. What the handle stands for, the default streams included, and whether work may
 * be enqueued: there is a current context, and nothing has failed. */
CUresult stream_of(CUstream handle, CUstream *stream);

/* Enqueues or captures. Without the lock. On an error, the caller still owns the operation. */
CUresult stream_enqueue(CUstream stream, const struct op *op);

#endif
