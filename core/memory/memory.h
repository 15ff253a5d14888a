/* Kinds of memory: host, and others that the CPU may not touch (CUDA; a test's own).
 *
 * alloc, free, copy and reduce of a kind are posted on a queue, like a transport's sends, and
 * finish then or later. Host memory finishes at once. A queue belongs to one engine and is used
 * under its lock. */
#ifndef CORE_MEMORY_MEMORY_H
#define CORE_MEMORY_MEMORY_H

#include "core/words/export.h"

#include <tutti/transport.h>

#include <stdatomic.h>
#include <stdbool.h>

struct memory_dma_buf;
struct memory_extent;

struct memory_queue {                   /* a kind's own struct begins with this */
	const struct memory_kind *kind;
	char error[240];                /* why its last failed operation failed, or ""   */
};

/* AFTER does nothing: it finishes when the work is over that its stream had when it was posted. */
enum memory_op {
	MEMORY_ALLOC, MEMORY_FREE, MEMORY_COPY, MEMORY_REDUCE, MEMORY_FINISH, MEMORY_SCALE,
	MEMORY_AFTER
};

/* One posted operation. Owned by the kind until it is on the done list. */
struct memory_io {
	struct tutti_io io;             /* alloc writes io.buf; alloc and free use io.bytes      */
	enum memory_op op;
	void *dst;                      /* all that move data; after: the stream; alloc: a       */
	                                /* buffer of the call                                    */
	const void *const *src;         /* copy, scale: one; the array lives as long as the io.  */
	                                /* after: a buffer of the call                           */
	int n_src;
	size_t count;                   /* elements; copy: bytes                                 */
	tutti_dtype dtype;
	tutti_op reduce_op;             /* scale: the scaled sum, whose scalar it takes */
	int divisor;                    /* as in core/memory/reduce.h                                 */
	bool is_lazy;                   /* after: nobody waits for it, so its end may be seen    */
	                                /* somewhat late                                         */
	void *ticket;                   /* the kind's own                                        */
};

/* What host memory, CUDA's (cuda/kind.c) and a test's have in common. Streams, which only CUDA has,
 * are in cuda/kind.h. */
struct memory_kind {
	const char *name;
	int id;                                             /* TUTTI_MEMORY_...                  */
	bool (*owns)(const void *ptr);
	tutti_status (*open)(struct memory_queue **queue);
	/* Does io->op. Copies go between this kind and itself or host memory. */
	void (*post)(struct memory_queue *queue, struct memory_io *io, struct tutti_done *done);
	int (*progress)(struct memory_queue *queue, struct tutti_done *done);
	/* Drops what is posted: afterwards no io is touched and no done list sees it. */
	void (*cancel)(struct memory_queue *queue);
	/* Also frees what was allocated through this queue and not freed. */
	void (*close)(struct memory_queue *queue);
	/* As memory_dma_buf; NULL where there is none. */
	tutti_status (*dma_buf)(struct memory_dma_buf *out, void *ptr, size_t bytes);
	/* With dma_buf, else NULL; any thread. */
	/* Whether memory of that device can be expected to have one, and adapters may write there:
	 * UNSUPPORTED, with the reason. */
	tutti_status (*dma_buf_check)(int device);
	bool (*extent)(struct memory_extent *out, const void *ptr); /* false: it is none */
	/* An adapter says that it has written at ptr: this kind's operations and the streams' work
	 * see that from here on. */
	tutti_status (*landed)(const void *ptr);
	/* Of a queue: memory of the kind, at once. NULL: there is none. */
	void *(*device_alloc)(struct memory_queue *queue, size_t bytes, const void *near);
	void (*device_free)(struct memory_queue *queue, void *ptr);

	/* Host memory that this kind copies to and from without the CPU; near is a buffer of the
	 * call. NULL: all memory is. The queue frees what was not given back. */
	void *(*host_alloc)(struct memory_queue *queue, size_t bytes, const void *near);
	void (*host_free)(struct memory_queue *queue, void *ptr);
};

extern const struct memory_kind memory_host TUTTI_PRIVATE(memory_host);

/* Adds a kind (a test's, CUDA's) for this process; ids are 0..TUTTI_MEMORY_KINDS-1. */
tutti_status memory_register(const struct memory_kind *kind);
const struct memory_kind *memory_kind(int id);             /* NULL: not registered           */

extern atomic_int memory_others TUTTI_PRIVATE(memory_others); /* kinds but host */
const struct memory_kind *memory_of_others(const void *ptr) TUTTI_PRIVATE(memory_of_others);

/* The kind that ptr belongs to: host if no other claims it. NULL is host. Every call looks. */
static inline const struct memory_kind *memory_of(const void *ptr)
{
	if (!ptr || atomic_load_explicit(&memory_others, memory_order_acquire) == 0)
		return &memory_host;
	return memory_of_others(ptr);
}

#endif
