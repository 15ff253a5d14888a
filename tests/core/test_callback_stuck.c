/* slow: 3 s */
/* What would break: a destroy that waits for ever for a callback that does not return or was left
 * by longjmp, or that frees what such a callback still uses. Each case is a process of its own,
 * with both ranks of a communicator. */
#include "tests/core/child.h"

#include <tutti/parallel.h>
#include <tutti/rpc.h>

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

enum { COUNT = 5000 };

/* ---- a reduction function that is left by longjmp */
static pthread_t leaver;
static jmp_buf back;

static void leaving(void *inout, const void *in, size_t count, tutti_dtype dtype, void *arg)
{
	(void)inout, (void)in, (void)count, (void)dtype, (void)arg;
	if (pthread_equal(pthread_self(), leaver))
		longjmp(back, 1);
}

static tutti_op op;

static void *reduce(void *arg)
{
	static float x[2][COUNT];
	tutti_comm *comm = arg;
	float *own = x[tutti_rank(comm)];

	tutti_all_reduce(own, own, COUNT, TUTTI_F32, op, comm, NULL);
	return NULL;
}

static void leave_reduction(tutti_comm *comm)
{
	leaver = pthread_self();
	if (setjmp(back) == 0)
		reduce(comm);
}

static void destroy_after_longjmp(void)
{
	tutti_comm *comms[2];
	pthread_t other;

	child_init(comms);
	MUST(tutti_op_create(&op, "leaving", leaving, NULL) == TUTTI_OK);
	pthread_create(&other, NULL, reduce, comms[1]);
	leave_reduction(comms[0]);
	tutti_comm_destroy(comms[0]);
	pthread_join(other, NULL);
	tutti_comm_destroy(comms[1]);
	tutti_comm_destroy(comms[0]); /* no harm, either */
	tutti_op_destroy(op);
}

static void test_longjmp(void **state)
{
	child_expect_end(destroy_after_longjmp, 0, "this thread holds its lock: a callback");
	setenv("TUTTI_WINDOW", "0", 1);
	child_expect_end(destroy_after_longjmp, 0, "this thread holds its lock: a callback");
	unsetenv("TUTTI_WINDOW");
}

static sem_t has_left, may_end;

static void *leave_and_live(void *arg)
{
	leave_reduction(arg);
	sem_post(&has_left);
	sem_wait(&may_end);
	return NULL;
}

static void destroy_in_other_thread(void)
{
	tutti_comm *comms[2];
	pthread_t other, own;

	sem_init(&has_left, 0, 0);
	sem_init(&may_end, 0, 0);
	child_init(comms);
	MUST(tutti_op_create(&op, "leaving", leaving, NULL) == TUTTI_OK);
	pthread_create(&other, NULL, reduce, comms[1]);
	pthread_create(&own, NULL, leave_and_live, comms[0]);
	sem_wait(&has_left);
	tutti_comm_destroy(comms[0]);
	sem_post(&may_end);
	pthread_join(own, NULL);
	pthread_join(other, NULL);
	tutti_comm_destroy(comms[1]);
}

static void test_other_thread(void **state)
{
	child_expect_end(destroy_in_other_thread, 0, "a thread has held its lock for 1000 ms");
}

/* ---- a reduction function that calls the library, which it must not */
static tutti_comm *of_reduction;

static void destroying(void *inout, const void *in, size_t count, tutti_dtype dtype, void *arg)
{
	(void)inout, (void)in, (void)count, (void)dtype, (void)arg;
	if (!pthread_equal(pthread_self(), leaver) || !of_reduction)
		return;
	tutti_comm_destroy(of_reduction);
	of_reduction = NULL;
}

static void destroy_in_reduction(void)
{
	tutti_comm *comms[2];
	pthread_t other;

	child_init(comms);
	leaver = pthread_self();
	of_reduction = comms[0];
	MUST(tutti_op_create(&op, "destroying", destroying, NULL) == TUTTI_OK);
	pthread_create(&other, NULL, reduce, comms[1]);
	reduce(comms[0]);
	pthread_join(other, NULL);
	tutti_comm_destroy(comms[1]);
}

static void aborting(void *inout, const void *in, size_t count, tutti_dtype dtype, void *arg)
{
	tutti_work *work = arg;
	int is_done;

	(void)inout, (void)in, (void)count, (void)dtype;
	if (work && pthread_equal(pthread_self(), leaver))
		tutti_work_cancel(work), tutti_work_test(work, &is_done);
}

static void cancel_in_reduction(void)
{
	static tutti_work *work;
	static float x[COUNT];
	tutti_comm *comms[2];
	pthread_t other;

	child_init(comms);
	leaver = pthread_self();
	MUST(tutti_recv(x, COUNT, TUTTI_F32, 1, comms[0], &(tutti_call){.work = &work}) ==
	     TUTTI_OK);
	MUST(tutti_op_create(&op, "aborting", aborting, work) == TUTTI_OK);
	pthread_create(&other, NULL, reduce, comms[1]);
	reduce(comms[0]);
}

/* Calls in a reduction of a blocking call, or of one that was submitted before there were bytes to
 * reduce, and that any thread carries out. */
static bool is_blocking;
static atomic_int refused;

static void nesting(void *inout, const void *in, size_t count, tutti_dtype dtype, void *arg)
{
	static const char why[] = "a reduction function must not call Tutti with its communicator";
	tutti_comm *comm = arg;

	(void)inout, (void)in, (void)count, (void)dtype;
	if (!comm)
		return;
	MUST(tutti_barrier(comm, NULL) == TUTTI_ERR_INVALID);
	MUST(strstr(tutti_comm_error(NULL), why));
	atomic_fetch_add(&refused, 1);
}

static void call_in_reduction(void)
{
	static float x[COUNT];
	tutti_work *work = NULL;
	tutti_comm *comms[2];
	pthread_t other;
	tutti_op own;

	child_init(comms);
	MUST(tutti_op_create(&own, "nesting", nesting, comms[0]) == TUTTI_OK);
	MUST(tutti_op_create(&op, "nesting", nesting, NULL) == TUTTI_OK);
	if (is_blocking)
		pthread_create(&other, NULL, reduce, comms[1]);
	MUST(tutti_all_reduce(x, x, COUNT, TUTTI_F32, own, comms[0],
			      is_blocking ? NULL : &(tutti_call){.work = &work}) == TUTTI_OK);
	if (!is_blocking)
		pthread_create(&other, NULL, reduce, comms[1]);
	MUST(tutti_work_wait(&work, 0) == TUTTI_OK);
	pthread_join(other, NULL);
	MUST(atomic_load(&refused) > 0);
	tutti_comm_destroy(comms[0]);
	tutti_comm_destroy(comms[1]);
}

static void test_calls_in_reduction(void **state)
{
	child_expect_end(destroy_in_reduction, 0, "this thread holds its lock: a callback");
	child_expect_end(cancel_in_reduction, -SIGABRT,
			 "a reduction function must not call Tutti with its communicator");
	is_blocking = true;
	child_expect_end(call_in_reduction, 0, "");
	setenv("TUTTI_WINDOW", "0", 1);
	child_expect_end(call_in_reduction, 0, "");
	is_blocking = false;
	child_expect_end(call_in_reduction, -SIGABRT,
			 "a reduction function must not call Tutti with its communicator");
	unsetenv("TUTTI_WINDOW");
}

/* ---- functions done */
static atomic_int returned;

static void blocking_done(void *arg, tutti_status status)
{
	(void)arg, (void)status;
	sem_post(&has_left);
	sem_wait(&may_end);
	atomic_fetch_add(&returned, 1);
}

static void *submit_with(void *arg)
{
	static float x[2][COUNT];
	tutti_comm *comm = arg;
	float *own = x[tutti_rank(comm)];
	tutti_call call = {.done = tutti_rank(comm) == 0 ? blocking_done : NULL};

	MUST(tutti_all_reduce(own, own, COUNT, TUTTI_F32, TUTTI_SUM, comm,
			      call.done ? &call : NULL) == TUTTI_OK);
	return NULL;
}

static void destroy_while_done_blocks(void)
{
	tutti_comm *comms[2];
	pthread_t other;

	sem_init(&has_left, 0, 0);
	sem_init(&may_end, 0, 0);
	child_init(comms);
	pthread_create(&other, NULL, submit_with, comms[1]);
	submit_with(comms[0]);
	sem_wait(&has_left);
	tutti_comm_destroy(comms[0]);
	MUST(atomic_load(&returned) == 0);
	sem_post(&may_end);
	pthread_join(other, NULL);
	tutti_comm_destroy(comms[1]);
	while (atomic_load(&returned) == 0) /* what it returns to is still there */
		sched_yield();
	child_init(comms);
	tutti_comm_destroy(comms[1]);
	tutti_comm_destroy(comms[0]);
}

static void test_done_blocks(void **state)
{
	child_expect_end(destroy_while_done_blocks, 0,
			 "the done function of a tutti_call does not return");
}

static tutti_comm *both[2];
static tutti_work *first[2];
static _Atomic tutti_status in_done[3];

/* What a done may do: submit, test, wait for a call that is over. Destroy destroys nothing. */
static void calling_done(void *arg, tutti_status status)
{
	static float x[2][COUNT];
	static tutti_work *more[2];
	int is_done = 0, rank = arg ? 1 : 0;

	if (rank == 0) {
		tutti_comm_destroy(both[0]);
		in_done[0] = status;
		in_done[1] = tutti_work_wait(&first[0], 0);
		in_done[2] = tutti_all_reduce(x[0], x[0], COUNT, TUTTI_F32, TUTTI_SUM, both[0],
					      &(tutti_call){.work = &more[0]});
		MUST(in_done[2] != TUTTI_OK || tutti_work_test(more[0], &is_done) == TUTTI_OK);
		tutti_work_release(&more[0]);
	}
	sem_post(&has_left);
}

static void *submit_two(void *arg)
{
	static float x[2][COUNT], y[2][COUNT], z[COUNT];
	tutti_comm *comm = arg;
	int r = tutti_rank(comm);

	MUST(tutti_all_reduce(x[r], x[r], COUNT, TUTTI_F32, TUTTI_SUM, comm,
			      &(tutti_call){.work = &first[r]}) == TUTTI_OK);
	MUST(tutti_all_reduce(y[r], y[r], COUNT, TUTTI_F32, TUTTI_SUM, comm,
			      &(tutti_call){.done = calling_done, .done_arg = r ? comm : NULL}) ==
	     TUTTI_OK);
	if (r == 1)
		MUST(tutti_all_reduce(z, z, COUNT, TUTTI_F32, TUTTI_SUM, comm, NULL) == TUTTI_OK);
	return NULL;
}

static void call_in_done(void)
{
	pthread_t other;

	sem_init(&has_left, 0, 0);
	child_init(both);
	pthread_create(&other, NULL, submit_two, both[1]);
	submit_two(both[0]);
	sem_wait(&has_left);
	sem_wait(&has_left);
	pthread_join(other, NULL);
	for (int i = 0; i < 3; i++)
		MUST(in_done[i] == TUTTI_OK);
	tutti_work_release(&first[1]);
	tutti_comm_destroy(both[0]);
	tutti_comm_destroy(both[1]);
}

static void test_calls_in_done(void **state)
{
	child_expect_end(
		call_in_done, 0,
		"tutti_comm_destroy destroys nothing: it was called in the done function of a "
		"tutti_call");
}

/* ---- the layers above */
static tutti_pipeline *pipeline;
static bool leaves;

static tutti_status destroying_forward(void *arg, int stage, int micro_batch, const void *in,
				       void *out)
{
	(void)arg, (void)stage, (void)micro_batch, (void)in, (void)out;
	if (leaves)
		longjmp(back, 1);
	tutti_pipeline_destroy(pipeline);
	return TUTTI_OK;
}

static tutti_status backward(void *arg, int stage, int micro_batch, const void *out_grad,
			     void *in_grad)
{
	(void)arg, (void)stage, (void)micro_batch, (void)out_grad, (void)in_grad;
	return TUTTI_OK;
}

static void run_pipeline(void)
{
	tutti_comm *comm;
	tutti_mesh *mesh;
	tutti_pipeline_config config = {.micro_batches = 1,
					.count = 1,
					.forward = destroying_forward,
					.backward = backward};

	MUST(tutti_init(&comm, &(tutti_config){.world_size = 1}) == TUTTI_OK);
	MUST(tutti_mesh_create(&mesh, comm, &(tutti_axis){"pp", 1}, 1) == TUTTI_OK);
	MUST(tutti_pipeline_create(&pipeline, mesh, &config) == TUTTI_OK);
	if (setjmp(back) == 0)
		MUST(tutti_pipeline_run(pipeline) == TUTTI_OK);
	tutti_pipeline_destroy(pipeline);
	tutti_mesh_destroy(mesh);
	tutti_comm_destroy(comm);
}

static void test_pipeline(void **state)
{
	static const char notice[] =
		"tutti_pipeline_destroy destroys nothing: a callback of the pipeline runs";

	child_expect_end(run_pipeline, 0, notice);
	leaves = true;
	child_expect_end(run_pipeline, 0, notice);
}

static tutti_status leaving_function(tutti_replica *replica)
{
	if (replica->index == 0)
		longjmp(back, 1);
	return TUTTI_OK;
}

/* Without threads: one of another replica would still use the stack that longjmp has left. */
static void leave_replica(void)
{
	const int64_t shape = 4;
	float items[2] = {0};
	tutti_comm *comm;
	tutti_data_parallel *dp;
	tutti_data_parallel_config config = {.forward = leaving_function,
					     .loss = leaving_function,
					     .backward = leaving_function,
					     .input_bytes = sizeof items[0],
					     .output_count = 1};
	tutti_data_parallel_batch batch = {.inputs = items, .items = 2};

	MUST(tutti_init(&comm, &(tutti_config){.world_size = 1}) == TUTTI_OK);
	MUST(tutti_model_create(&config.model) == TUTTI_OK);
	tutti_model_param(config.model, tutti_model_unit(config.model, "unit"), "p", 1, &shape, 0);
	MUST(tutti_data_parallel_create(&dp, &comm, 1, &config) == TUTTI_OK);
	if (setjmp(back) == 0)
		tutti_data_parallel_step(dp, &batch, &(tutti_optimizer){.kind = TUTTI_SGD}, 1,
					 NULL);
	tutti_data_parallel_destroy(dp);
	tutti_comm_destroy(comm);
}

static void test_replica(void **state)
{
	child_expect_end(leave_replica, 0,
			 "tutti_data_parallel_destroy destroys nothing: a function of a replica");
}

/* ---- every object whose destroy function waits, in a done function */
static struct {
	tutti_comm *comm;
	tutti_mesh *mesh;
	tutti_pipeline *pipeline;
	tutti_trainer *trainer;
	tutti_data_parallel *dp;
	tutti_rpc *rpc;
} whole;

static void destroy_whole(void)
{
	tutti_rpc_destroy(whole.rpc);
	tutti_data_parallel_destroy(whole.dp);
	tutti_trainer_destroy(whole.trainer);
	tutti_pipeline_destroy(whole.pipeline);
	tutti_mesh_destroy(whole.mesh);
	tutti_comm_destroy(whole.comm);
}

static void destroying_done(void *arg, tutti_status status)
{
	(void)arg, (void)status;
	destroy_whole();
	sem_post(&has_left);
}

static void make_whole(void)
{
	const int64_t shape = 4;
	tutti_pipeline_config stages = {.micro_batches = 1,
					.count = 1,
					.forward = destroying_forward,
					.backward = backward};
	tutti_data_parallel_config copies = {.forward = leaving_function,
					     .loss = leaving_function,
					     .backward = leaving_function,
					     .input_bytes = sizeof(float),
					     .output_count = 1};

	MUST(tutti_init(&whole.comm, &(tutti_config){.world_size = 1}) == TUTTI_OK);
	MUST(tutti_mesh_create(&whole.mesh, whole.comm, &(tutti_axis){"pp", 1}, 1) == TUTTI_OK);
	MUST(tutti_pipeline_create(&whole.pipeline, whole.mesh, &stages) == TUTTI_OK);
	MUST(tutti_model_create(&copies.model) == TUTTI_OK);
	tutti_model_param(copies.model, tutti_model_unit(copies.model, "unit"), "p", 1, &shape, 0);
	MUST(tutti_trainer_create(&whole.trainer, copies.model, whole.comm, NULL) == TUTTI_OK);
	MUST(tutti_data_parallel_create(&whole.dp, &whole.comm, 1, &copies) == TUTTI_OK);
	MUST(tutti_rpc_create(&whole.rpc, whole.comm, NULL) == TUTTI_OK);
	tutti_model_destroy(copies.model);
}

static void check_whole(void)
{
	float x = 1;

	sem_wait(&has_left);
	MUST(tutti_rpc_status(whole.rpc) == TUTTI_OK);
	MUST(tutti_all_reduce(&x, &x, 1, TUTTI_F32, TUTTI_SUM, tutti_mesh_comm(whole.mesh, "pp"),
			      NULL) == TUTTI_OK);
	MUST(tutti_trainer_stats(whole.trainer, &(tutti_train_stats){0}) == TUTTI_OK);
}

static void destroy_in_done_of_group(void)
{
	sem_init(&has_left, 0, 0);
	make_whole();
	MUST(tutti_group_begin() == TUTTI_OK);
	MUST(tutti_group_end(&(tutti_call){.done = destroying_done}) == TUTTI_OK);
	check_whole();
	destroy_whole();
}

static void destroy_in_done_of_rpc(void)
{
	const tutti_rpc_options options = {.done = destroying_done};

	sem_init(&has_left, 0, 0);
	make_whole();
	MUST(tutti_rpc_call_async(whole.rpc, 0, "none", NULL, 0, NULL, &options, NULL) == TUTTI_OK);
	check_whole();
	destroy_whole();
}

static void destroy_in_done_of_call(void)
{
	static float x;

	sem_init(&has_left, 0, 0);
	make_whole();
	MUST(tutti_all_reduce(&x, &x, 1, TUTTI_F32, TUTTI_SUM, whole.comm,
			      &(tutti_call){.done = destroying_done}) == TUTTI_OK);
	check_whole();
	destroy_whole();
}

/* Each says so once: the second time it destroys. */
static void expect_kept(void (*scenario)(void))
{
	static const char *const notices[] = {"tutti_rpc_destroy does nothing",
					      "tutti_comm_destroy destroys nothing",
					      "tutti_pipeline_destroy destroys nothing",
					      "tutti_mesh_destroy destroys nothing",
					      "tutti_trainer_destroy destroys nothing",
					      "tutti_data_parallel_destroy destroys nothing"};
	char said[4096];
	int end = child_run(scenario, said, sizeof said);

	for (size_t i = 0; i < sizeof notices / sizeof notices[0]; i++) {
		const char *at = strstr(said, notices[i]);
		if (end != 0 || !at || strstr(at + 1, notices[i]))
			fail_msg("ended with %d, and said '%s' instead of '%s' once", end, said,
				 notices[i]);
	}
}

static void test_all_in_done(void **state)
{
	expect_kept(destroy_in_done_of_group);
	expect_kept(destroy_in_done_of_rpc);
	expect_kept(destroy_in_done_of_call);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_longjmp),
		cmocka_unit_test(test_other_thread),
		cmocka_unit_test(test_calls_in_reduction),
		cmocka_unit_test(test_done_blocks),
		cmocka_unit_test(test_calls_in_done),
		cmocka_unit_test(test_pipeline),
		cmocka_unit_test(test_replica),
		cmocka_unit_test(test_all_in_done),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
