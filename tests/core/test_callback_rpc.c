/* slow: 3 s */
/* What would break: a destroy that waits for ever beside a function of an rpc that does not return,
 * or in such a function; or that names another callback than the one to blame. */
#include "tests/core/child.h"

#include <tutti/rpc.h>

#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "tests/unit.h"

static sem_t has_left, may_end;
static atomic_int returned;

static void block(void *arg, tutti_status status)
{
	(void)arg, (void)status;
	sem_post(&has_left);
	sem_wait(&may_end);
	atomic_fetch_add(&returned, 1);
}

static tutti_rpc *of_done;

static tutti_status blocking_function(void *arg, const tutti_rpc_request *request,
				      tutti_rpc_reply *reply)
{
	(void)arg, (void)request, (void)reply;
	block(NULL, TUTTI_OK);
	return TUTTI_OK;
}

static void open_rpc(tutti_comm **comm, tutti_rpc_fn fn)
{
	const tutti_rpc_function function = {.name = "mine", .fn = fn, .flags = TUTTI_RPC_SHORT};
	const tutti_rpc_config config = {.functions = &function, .num_functions = 1};

	sem_init(&has_left, 0, 0);
	sem_init(&may_end, 0, 0);
	MUST(tutti_init(comm, &(tutti_config){.world_size = 1, .timeout_ms = CHILD_TIMEOUT_MS}) ==
	     TUTTI_OK);
	MUST(tutti_rpc_create(&of_done, *comm, &config) == TUTTI_OK);
}

static void nothing(void *arg, tutti_status status)
{
	(void)arg, (void)status;
}

/* The helper thread is in a function of an rpc when the communicator is destroyed. */
static void destroy_beside_rpc(tutti_rpc_fn fn, const char *name, tutti_done_fn done)
{
	const tutti_rpc_options options = {.done = done};
	tutti_comm *comm;
	tutti_work *work;
	static float x;

	open_rpc(&comm, fn);
	MUST(tutti_rpc_call_async(of_done, 0, name, NULL, 0, NULL, &options, NULL) == TUTTI_OK);
	sem_wait(&has_left);
	MUST(tutti_all_reduce(&x, &x, 1, TUTTI_F32, TUTTI_SUM, comm,
			      &(tutti_call){.work = &work, .done = nothing}) == TUTTI_OK);
	tutti_work_release(&work);
	tutti_comm_destroy(comm);
	MUST(atomic_load(&returned) == 0);
	sem_post(&may_end);
	while (atomic_load(&returned) == 0)
		sched_yield();
}

static void destroy_beside_done_of_rpc(void)
{
	destroy_beside_rpc(blocking_function, "none", block);
}

static void destroy_beside_short_function(void)
{
	destroy_beside_rpc(blocking_function, "mine", nothing);
}

static void test_rpc_blocks(void **state)
{
	child_expect_end(destroy_beside_done_of_rpc, 0,
			 "done of tutti_rpc_options does not return");
	child_expect_end(destroy_beside_short_function, 0,
			 "a function with TUTTI_RPC_SHORT does not return");
}

static tutti_comm *of_function;

static void releasing(void *arg)
{
	(void)arg;
	tutti_comm_destroy(of_function);
}

static tutti_status destroying_function(void *arg, const tutti_rpc_request *request,
					tutti_rpc_reply *reply)
{
	(void)arg, (void)request;
	tutti_comm_destroy(of_function);
	return tutti_rpc_reply_pieces(reply, NULL, 0, releasing, NULL);
}

static void destroying_done_of_rpc(void *arg, tutti_status status)
{
	(void)arg, (void)status;
	tutti_comm_destroy(of_function);
	sem_post(&has_left);
}

static void call_in_rpc(void)
{
	const tutti_rpc_options options = {.done = destroying_done_of_rpc};

	open_rpc(&of_function, destroying_function);
	MUST(tutti_rpc_call_async(of_done, 0, "mine", NULL, 0, NULL, &options, NULL) == TUTTI_OK);
	sem_wait(&has_left);
	tutti_rpc_destroy(of_done);
	tutti_comm_destroy(of_function);
}

static void test_calls_in_rpc(void **state)
{
	child_expect_end(call_in_rpc, 0, "it was called in a function with TUTTI_RPC_SHORT");
	child_expect_end(call_in_rpc, 0, "it was called in a release function of an rpc");
	child_expect_end(call_in_rpc, 0, "it was called in done of tutti_rpc_options");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rpc_blocks),
		cmocka_unit_test(test_calls_in_rpc),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
