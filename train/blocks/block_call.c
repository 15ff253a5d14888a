#include "train/blocks/block_call.h"

#include "core/callback.h"
#include "core/memory/dtype.h"
#include "core/memory/memory.h"

static tutti_status block_call_check_call(const struct block_call *c, const tutti_call *call)
{
	if (!call)
		return TUTTI_OK;
	if (call->work || call->done || call->source)
		return fail_invalid("%s: call.%s is set, but the call is over when it returns: fn "
				    "runs on this thread",
				    c->name,
				    call->work   ? "work"
				    : call->done ? "done"
						 : "source");
	if (call->timeout_ms < 0)
		return fail_invalid("%s: call.timeout_ms is %d: it must not be negative", c->name,
				    call->timeout_ms);
	if (call->stream)
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "%s: call.stream is set, but blocks are handed over in host "
			    "memory only: wait for the stream first",
			    c->name);
	return TUTTI_OK;
}

static tutti_status block_call_check_arguments(struct block_call *c, const void *buffer)
{
	if (!c->comm || !c->fn)
		return fail_invalid("%s: %s is NULL", c->name, c->comm ? "fn" : "comm");
	if (dtype_bytes(c->dtype) == 0)
		return fail_invalid("%s: there is no dtype %d", c->name, (int)c->dtype);
	if (__builtin_mul_overflow(c->count, dtype_bytes(c->dtype), &c->bytes))
		return fail_invalid("%s: no memory can hold %zu elements of %s", c->name, c->count,
				    dtype_name(c->dtype));
	if (c->count > 0 && !buffer)
		return fail_invalid("%s: the buffer of %zu elements is NULL", c->name, c->count);
	if (memory_of(buffer) != &memory_host)
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "%s: the buffer is in %s memory, but blocks are handed over in "
			    "host memory only: use tutti_all_gather or tutti_reduce_scatter",
			    c->name, memory_of(buffer)->name);
	return TUTTI_OK;
}

tutti_status block_call_begin(struct block_call *c, const void *buffer, const tutti_call *call)
{
	TRY(tutti_group_refuse(c->name));
	TRY(block_call_check_arguments(c, buffer));
	TRY(block_call_check_call(c, call));
	c->rank = tutti_rank(c->comm);
	c->size = tutti_size(c->comm);
	c->part = (tutti_call){.timeout_ms = call ? call->timeout_ms : 0,
			       .label = call && call->label ? call->label : c->name};
	return TUTTI_OK;
}

bool block_call_has_memory(struct block_call *c, tutti_status status)
{
	kept_error_note(&c->failure, status);
	if (status != TUTTI_OK)
		(void)tutti_comm_abort(c->comm);
	return status == TUTTI_OK;
}

/* fn may have said why, as its thread's last error. */
static void note_fn(struct block_call *c, int rank, tutti_status status)
{
	struct kept_error said = kept_error_of(status);

	kept_error_note(&c->failure,
			fail(status, "%s: fn has failed at the block of rank %d: %.350s", c->name,
			     rank, said.message[0] ? said.message : tutti_status_string(status)));
}

bool block_call_fn(struct block_call *c, int rank, void *data)
{
	if (c->failure.status != TUTTI_OK)
		return false;
	tutti_set_error(TUTTI_OK, "");
	tutti_status status;
	callback_call("fn", c->name, c->rank, status = c->fn(c->arg, rank, data, c->count));
	if (status != TUTTI_OK)
		note_fn(c, rank, status);
	return status == TUTTI_OK;
}

bool block_call_is_well(struct block_call *c, int rank, tutti_status status)
{
	if (status == TUTTI_OK) {
		c->has_begun = true;
		return true;
	}
	struct kept_error said = kept_error_of(status);
	char of[40] = "";
	if (rank >= 0)
		snprintf(of, sizeof of, ", block of rank %d", rank);
	kept_error_note(&c->failure, fail(status, "%s%s: %.400s", c->name, of, said.message));
	if (c->has_begun && tutti_comm_status(c->comm) == TUTTI_OK)
		(void)tutti_comm_abort(c->comm);
	return false;
}

bool block_call_wait(struct block_call *c, int rank, tutti_work **work)
{
	return !*work || block_call_is_well(c, rank, tutti_work_wait(work, 0));
}
