/* Would break: ranks that wait for one whose fn has failed, or do not hear of it; bad arguments
 * that are let through, or refused without an error message. */
#include "tests/collectives/thread_ranks.h"
#include "tests/core/memory/proof_kind.h"

#include <tutti/parallel.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

#define COUNT 20011

/* fn fails on one rank at one block. */
struct plan {
	struct rank *r;
	int bad_rank, bad_block;
	const char *message; /* or NULL: fn says nothing */
	int calls;
	bool has_failed;
};

static tutti_status act(struct plan *p, int rank)
{
	if (p->has_failed)
		report_wrong(p->r, "fn is called after it has failed", TUTTI_OK);
	p->calls++;
	if (p->r->rank != p->bad_rank || rank != p->bad_block)
		return TUTTI_OK;
	p->has_failed = true;
	return p->message ? tutti_set_error(TUTTI_ERR_SYSTEM, p->message) : TUTTI_ERR_SYSTEM;
}

static tutti_status read_block(void *arg, int rank, void *data, size_t count)
{
	const int32_t *values = data;

	for (size_t i = 0; i < count; i++)
		if (values[i] != (int32_t)i * (rank + 3)) {
			report_wrong(((struct plan *)arg)->r, "a value of a block", TUTTI_OK);
			break;
		}
	return act(arg, rank);
}

static tutti_status write_block(void *arg, int rank, void *data, size_t count)
{
	for (size_t i = 0; i < count; i++)
		((int32_t *)data)[i] = (int32_t)i + rank;
	return act(arg, rank);
}

static void must_say(struct rank *r, const char *what, tutti_status status, tutti_status wanted,
		     const char *text)
{
	char said[600];

	snprintf(said, sizeof said, "%s", tutti_comm_error(NULL));
	if (status != wanted || !strstr(said, text))
		report_wrong(r, what, tutti_set_error(status, said));
}

/* The others get all blocks, and the next call is well. */
static void gather_with(struct rank *r, int32_t *send, struct plan p)
{
	char text[100];

	tutti_set_error(TUTTI_OK, "an old message");
	tutti_status status =
		tutti_all_gather_each(send, COUNT, TUTTI_I32, read_block, &p, r->comm, NULL);
	if (r->rank != p.bad_rank) {
		if (status != TUTTI_OK || p.calls != r->size)
			report_wrong(r, "a rank whose fn is well", status);
		return;
	}
	snprintf(text, sizeof text,
		 "tutti_all_gather_each: fn has failed at the block of rank %d: %s", p.bad_block,
		 p.message ? p.message : tutti_status_string(TUTTI_ERR_SYSTEM));
	must_say(r, "the rank whose fn has failed", status, TUTTI_ERR_SYSTEM, text);
}

/* All hear of it. */
static void scatter_with(struct rank *r, int32_t *recv, struct plan p)
{
	char text[160];

	tutti_set_error(TUTTI_OK, "an old message");
	tutti_status status = tutti_reduce_scatter_each(recv, COUNT, TUTTI_I32, TUTTI_SUM,
							write_block, &p, r->comm, NULL);
	snprintf(text, sizeof text,
		 "tutti_reduce_scatter_each: fn has failed at the block of rank %d: %s",
		 p.bad_block, p.message ? p.message : tutti_status_string(TUTTI_ERR_SYSTEM));
	must_say(r, "what all say", status, TUTTI_ERR_SYSTEM, text);
	snprintf(text, sizeof text, "On rank %d: ", p.bad_rank);
	if (r->rank != p.bad_rank)
		must_say(r, "whose fn it was", status, TUTTI_ERR_SYSTEM, text);
}

static void fail_in_fn(struct rank *r)
{
	int32_t *values = malloc(COUNT * sizeof *values);

	for (int bad = 0; bad < r->size; bad++)
		for (int block = 0; block < r->size; block++) {
			struct plan p = {r, bad, block, block % 2 ? "the disk is full" : NULL,
					 0, 0};
			for (int i = 0; i < COUNT; i++)
				values[i] = (int32_t)i * (r->rank + 3);
			gather_with(r, values, p);
			scatter_with(r, values, p);
		}
	/* Nothing is left of the failures. */
	struct plan p = {r, -1, 0, NULL, 0, 0};
	expect(r, "the last call",
	       tutti_reduce_scatter_each(values, COUNT, TUTTI_I32, TUTTI_SUM, write_block, &p,
					 r->comm, NULL));
	for (int i = 0; i < COUNT; i++)
		if (values[i] != (i + r->rank) * r->size) {
			report_wrong(r, "a sum of the last call", TUTTI_OK);
			break;
		}
	free(values);
}

static void test_fn(void **state)
{
	everywhere(fail_in_fn);
}

static tutti_status never(void *arg, int rank, void *data, size_t count)
{
	report_wrong(arg, "fn is called by a call that is refused", TUTTI_OK);
	return TUTTI_OK;
}

static void gather_refused(struct rank *r, const char *text, tutti_status wanted, const void *send,
			   size_t count, int dtype, const tutti_call *call)
{
	must_say(r, text,
		 tutti_all_gather_each(send, count, (tutti_dtype)dtype, never, r, r->comm, call),
		 wanted, text);
	must_say(r, text,
		 tutti_reduce_scatter_each((void *)(uintptr_t)send, count, (tutti_dtype)dtype,
					   TUTTI_SUM, never, r, r->comm, call),
		 wanted, text);
}

static void done_never(void *arg, tutti_status status)
{
	report_wrong(arg, "done is called", status);
}

static void refuse_calls(struct rank *r, const float *x)
{
	tutti_work *work = NULL;
	int source = 0;
	tutti_call call = {.work = &work};

	gather_refused(r, "call.work is set", TUTTI_ERR_INVALID, x, 1, TUTTI_F32, &call);
	call = (tutti_call){.done = done_never, .done_arg = r};
	gather_refused(r, "call.done is set", TUTTI_ERR_INVALID, x, 1, TUTTI_F32, &call);
	call = (tutti_call){.source = &source};
	gather_refused(r, "call.source is set", TUTTI_ERR_INVALID, x, 1, TUTTI_F32, &call);
	call = (tutti_call){.stream = &source};
	gather_refused(r, "call.stream is set", TUTTI_ERR_UNSUPPORTED, x, 1, TUTTI_F32, &call);
	call = (tutti_call){.timeout_ms = -1};
	gather_refused(r, "call.timeout_ms is -1", TUTTI_ERR_INVALID, x, 1, TUTTI_F32, &call);
}

static void refuse_arguments(struct rank *r, const float *x)
{
	gather_refused(r, "the buffer of 1 elements is NULL", TUTTI_ERR_INVALID, NULL, 1, TUTTI_F32,
		       NULL);
	gather_refused(r, "there is no dtype 99", TUTTI_ERR_INVALID, x, 1, 99, NULL);
	gather_refused(r, "there is no dtype -1", TUTTI_ERR_INVALID, x, 1, -1, NULL);
	gather_refused(r, "no memory can hold", TUTTI_ERR_INVALID, x, SIZE_MAX / 2, TUTTI_F32,
		       NULL);
	must_say(r, "fn", tutti_all_gather_each(x, 1, TUTTI_F32, NULL, r, r->comm, NULL),
		 TUTTI_ERR_INVALID, "fn is NULL");
	must_say(r, "comm", tutti_all_gather_each(x, 1, TUTTI_F32, never, r, NULL, NULL),
		 TUTTI_ERR_INVALID, "comm is NULL");
	must_say(r, "op",
		 tutti_reduce_scatter_each((void *)(uintptr_t)x, 1, TUTTI_F32, TUTTI_BAND, never, r,
					   r->comm, NULL),
		 TUTTI_ERR_INVALID, "operation band does not work on f32");
	must_say(r, "op",
		 tutti_reduce_scatter_each((void *)(uintptr_t)x, 1, TUTTI_F32, (tutti_op)63, never,
					   r, r->comm, NULL),
		 TUTTI_ERR_INVALID, "there is no operation 63");
}

static void refuse_all(struct rank *r)
{
	struct plan p = {r, -1, 0, NULL, 0, 0};
	int32_t values[2] = {0, (int32_t)r->rank + 3};
	uint64_t before = tutti_comm_sequence(r->comm);
	void *proof = proof_alloc(64);
	float x = 1;

	refuse_arguments(r, &x);
	refuse_calls(r, &x);
	gather_refused(r, "host memory only", TUTTI_ERR_UNSUPPORTED, proof, 1, TUTTI_F32, NULL);
	tutti_group_begin();
	gather_refused(r, "a group is open", TUTTI_ERR_INVALID, &x, 1, TUTTI_F32, NULL);
	expect(r, "the group's end, which has none of them", tutti_group_end(NULL));
	if (tutti_comm_sequence(r->comm) != before)
		report_wrong(r, "a sequence number was used", TUTTI_OK);
	expect(r, "a call after them",
	       tutti_all_gather_each(values, 2, TUTTI_I32, read_block, &p, r->comm, NULL));
	proof_free(proof);
}

static void test_refused(void **state)
{
	assert_int_equal(proof_kind_use(1), TUTTI_OK);
	everywhere(refuse_all);
}

/* One rank passes another count, dtype or op. */
static int odd_one; /* 0: count, 1: dtype, 2: the other function */

static tutti_status ignore(void *arg, int rank, void *data, size_t count)
{
	return TUTTI_OK;
}

static void differ(struct rank *r)
{
	bool is_odd = r->rank == r->size - 1;
	size_t count = COUNT + (size_t)(is_odd && odd_one == 0);
	tutti_dtype dtype = is_odd && odd_one == 1 ? TUTTI_U32 : TUTTI_I32;
	int32_t *values = calloc(COUNT + 1, sizeof *values);
	tutti_status status =
		is_odd && odd_one == 2
			? tutti_reduce_scatter_each(values, count, dtype, TUTTI_SUM, ignore, NULL,
						    r->comm, NULL)
			: tutti_all_gather_each(values, count, dtype, ignore, NULL, r->comm, NULL);

	if (status != TUTTI_ERR_MISMATCH)
		report_wrong(r, "ranks that differ", status);
	free(values);
}

static void test_mismatch(void **state)
{
	for (odd_one = 0; odd_one < 3; odd_one++)
		for (int n = 2; n <= 5; n += 3) {
			with_ranks(n, NULL, 0, differ);
			with_ranks(n, "shm", 0, differ);
			with_ranks(n, "tcp", 0, differ);
		}
}

/* No memory on one rank: the others hear of it at once. */
static void lack_memory(struct rank *r)
{
	size_t count = r->rank == 0 ? (size_t)1 << 60 : 8;
	uint8_t values[8] = {0};
	tutti_status status =
		tutti_all_gather_each(values, count, TUTTI_U8, ignore, NULL, r->comm, NULL);

	if (status != (r->rank == 0               ? TUTTI_ERR_MEMORY
		       : r->size == 1             ? TUTTI_OK
		       : status == TUTTI_ERR_PEER ? TUTTI_ERR_PEER
						  : TUTTI_ERR_ABORTED))
		report_wrong(r, "a rank without memory", status);
}

static void test_memory(void **state)
{
	everywhere(lack_memory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fn),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_mismatch),
		cmocka_unit_test(test_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
