/* The memory kind "cuda": memory of this process's GPUs. */
#ifndef CUDA_KIND_H
#define CUDA_KIND_H

#include "core/memory/memory.h"

/* Registers the kind where there is a driver. Once is enough. Any thread. */
void cuda_kind_use(void);

/* For kind.c: its other files. */
/* queue.c */
tutti_status cuda_queue_open(struct memory_queue **queue);
void cuda_queue_post(struct memory_queue *queue, struct memory_io *io, struct tutti_done *done);
int cuda_queue_progress(struct memory_queue *queue, struct tutti_done *done);
void cuda_queue_cancel(struct memory_queue *queue);
void cuda_queue_close(struct memory_queue *queue);
void *cuda_host_alloc(struct memory_queue *queue, size_t bytes, const void *near);
void cuda_host_free(struct memory_queue *queue, void *ptr);
void *cuda_device_alloc(struct memory_queue *queue, size_t bytes, const void *near);
void cuda_device_free(struct memory_queue *queue, void *ptr);

tutti_status cuda_stream_join(const struct memory_io *io, void *stream, const void *near);

/* dma_buf.c */
tutti_status cuda_dma_buf(struct memory_dma_buf *out, void *ptr, size_t bytes);
/* For a communicator, which uses the device; and whether its driver offers dma-bufs, without that:
 * UNSUPPORTED says why not. */
tutti_status cuda_dma_buf_check(int ordinal);
tutti_status cuda_dma_buf_offered(int ordinal);
bool cuda_extent(struct memory_extent *out, const void *ptr);
tutti_status cuda_landed(const void *ptr);

/* gates.c */
tutti_status cuda_gate_take(struct memory_gate *gate);
bool cuda_stream_blocks_others(void *stream, const void *near);
tutti_status cuda_gate_wait(const struct memory_gate *gate, void *stream, const void *near);
void cuda_gate_open(struct memory_gate *gate);

/* captures.c */
bool cuda_is_captured(void *stream);
tutti_status cuda_gate_capture(const struct memory_gate *gate, void *stream, void (*start)(void *),
                               void *arg, struct memory_captured *latest);
void cuda_captured_free(struct memory_captured *latest);

#endif
