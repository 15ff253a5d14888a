/* Capture of streams: instead of running, operations become nodes of a graph. */
#ifndef TESTS_CUDA_CAPTURE_H
#define TESTS_CUDA_CAPTURE_H

#include <stdbool.h>
#include "tests/cuda/driver/event.h"

/* With the lock. If the stream captures, the operation is a node now, which owns it, and
 * is_captured is set. Errors are those of calls that a capture does not allow. */
CUresult capture_add(CUstream stream, const struct op *op, bool *is_captured);
CUresult capture_record(CUstream stream, CUevent event, bool *is_captured);
CUresult capture_wait(CUstream stream, CUevent event, bool *is_captured);
/* For a stream that is destroyed: a capture that began in it ends, another one fails. */
void capture_leave(CUstream stream);

/* Without the lock. Whether the calling thread may make a call that is not for a stream, such as an
 * allocation; if not, the capture that forbids it fails. */
CUresult capture_forbids(void);
/* The same, for asking or waiting for a stream or an event. */
CUresult capture_forbids_sync(CUstream stream);
CUresult capture_forbids_event(CUevent event);

bool stream_capture_is_invalid(CUstream stream);

#endif
