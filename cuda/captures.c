/* Streams that are captured: in a graph a call of the engine is a host function, by which a replay
 * tells the CPU that it has come there, and a wait at a gate.
 *
 * The start of a host function "has the same effect as synchronizing an event recorded in the same
 * stream immediately prior to the function" (cuLaunchHostFunc): so the stream's earlier work is
 * over, and what it wrote is there. */
#include "cuda/kind.h"

#include "core/status.h"
#include "cuda/device.h"

/* The legacy stream cannot be captured, and must not be asked while others are. A stream that
 * cannot be asked is refused later, when it is used. */
bool cuda_is_captured(void *stream)
{
	uint64_t capture;

	return stream && stream != CU_STREAM_LEGACY &&
	       cuda_capture_of_any(stream, NULL, &capture) == TUTTI_OK && capture != 0;
}

static void free_event(struct memory_captured *latest)
{
	if (latest->event)
		cuda_driver()->event_destroy(latest->event);
	latest->event = NULL;
}

static tutti_status captures_note_latest(struct memory_captured *latest, struct cuda_device *device,
					 CUstream stream, uint64_t capture)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUevent event;

	if (latest->device != device) /* an event is recorded in its own context */
		free_event(latest);
	if (!latest->event) {
		CUDA_TRY(event_create, &event, CU_EVENT_DISABLE_TIMING);
		latest->event = event;
		latest->device = device;
	}
	CUDA_TRY(event_record, latest->event, stream);
	latest->capture = capture;
	return TUTTI_OK;
}

static tutti_status captures_put(const struct memory_gate *gate, CUstream stream,
				 void (*start)(void *), void *arg,
				 const struct memory_captured *latest, uint64_t capture)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUstreamBatchMemOpParams wait = {.waitValue = {.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32,
						       .value = gate->open,
						       .flags = CU_STREAM_WAIT_VALUE_GEQ}};

	if (latest->capture == capture)
		CUDA_TRY(stream_wait_event, stream, latest->event, 0);
	CUDA_TRY(launch_host_func, stream, start, arg);
	CUDA_TRY(mem_host_get_device_pointer, &wait.waitValue.address,
		 (void *)(uintptr_t)gate->word, 0);
	CUDA_TRY(stream_batch_mem_op, stream, 1, &wait, 0);
	return TUTTI_OK;
}

tutti_status cuda_gate_capture(const struct memory_gate *gate, void *stream, void (*start)(void *),
			       void *arg, struct memory_captured *latest)
{
	struct cuda_device *device;
	struct cuda_visit visit;
	uint64_t capture;

	TRY(cuda_device_of_stream(&device, stream, NULL));
	TRY(cuda_enter(device, &visit));
	tutti_status status = cuda_capture_of(stream, &capture);
	if (status == TUTTI_OK)
		status = captures_put(gate, stream, start, arg, latest, capture);
	if (status == TUTTI_OK)
		status = captures_note_latest(latest, device, stream, capture);
	cuda_leave(&visit);
	return status;
}

void cuda_captured_free(struct memory_captured *latest)
{
	free_event(latest);
}
