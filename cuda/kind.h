/* The memory kind "cuda": memory of this process's GPUs; and the streams of its programs. */
#ifndef CUDA_KIND_H
#define CUDA_KIND_H

#include "core/memory/memory.h"

/* Registers the kind where there is a driver. Once is enough. Any thread. */
void cuda_kind_use(void);

/* For a communicator, which uses the device; and whether its driver offers dma-bufs, without that:
 * UNSUPPORTED says why not. */
tutti_status cuda_dma_buf_offered(int ordinal);

/* Streams, where the kind is registered. near is a buffer of the call, or NULL: it says which
 * device's default stream is meant. Any thread. */

/* Whether calls may be ordered by this stream: INVALID. */
tutti_status cuda_stream_check(void *stream, const void *near);
/* The stream's later work waits for an AFTER that is posted and not done. */
tutti_status cuda_stream_join(const struct memory_io *io, void *stream, const void *near);
/* Whether the program's thread may keep other threads' operations of this kind waiting while it
 * waits for what is in this stream: then nothing in it may need one of them. */
bool cuda_stream_blocks_others(void *stream, const void *near);
/* Whether what goes into stream goes into a graph. */
bool cuda_is_captured(void *stream);

/* Streams wait at a gate until the host opens it. It is used again and again. */
struct cuda_gate {
	_Atomic uint32_t *word; /* NULL: there is no gate  */
	uint32_t open;          /* the word's value then   */
};

tutti_status cuda_gate_take(struct cuda_gate *gate);
/* The stream's later work waits until the gate is open. */
tutti_status cuda_gate_wait(const struct cuda_gate *gate, void *stream, const void *near);
void cuda_gate_open(struct cuda_gate *gate); /* and gives it back */

/* The calls of one capture come after each other: the latest of them. Zeroed at first. */
struct cuda_captured {
	uint64_t capture;      /* of this id; 0: there is none */
	void *event, *device;
};

/* A stream that is captured: wherever the graph runs, it calls start(arg), which is not to call
 * the driver, and then waits until the gate's word is what gate->open says, behind what came into
 * the same capture by latest. */
tutti_status cuda_gate_capture(const struct cuda_gate *gate, void *stream, void (*start)(void *arg),
			       void *arg, struct cuda_captured *latest);
void cuda_captured_free(struct cuda_captured *latest);

#endif
