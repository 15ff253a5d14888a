/* Breaks when a call takes another route than the one that is meant to serve it. Those by kernels
 * need GPUs; tests/cuda sees them by what their calls do. */
#include "collectives/comm/routes.h"
#include "collectives/engine/task.h"

#include <string.h>

#include "tests/unit.h"

static struct engine engine;
static struct tutti_comm comm;
static float data[4];

static void without_window(void)
{
	memset(&comm, 0, sizeof comm);
	comm.engine = &engine;
	comm.size = comm.select.size = 3;
	comm.select.num_nodes = 1;
	select_prepare(&comm.select, &comm.select.links);
}

static void with_window(void)
{
	without_window();
	comm.select.has_window = true;
}

static struct call_args sum(void)
{
	return (struct call_args){
		.collective = COLL_ALL_REDUCE, .count = 4, .send = data, .recv = data};
}

static void expect_route(const char *name, const struct call_args *args, const tutti_call *call)
{
	struct route_call c = {.comm = &comm, .args = args, .call = call};

	assert_int_equal(route_find(&c), TUTTI_OK);
	assert_string_equal(c.route->name, name);
}

static void done(void *arg, tutti_status status)
{
	(void)arg;
	(void)status;
}

static void test_window(void **state)
{
	struct call_args args = sum();
	tutti_work *work;

	with_window();
	expect_route("window", &args, NULL);
	expect_route("window", &args, &(tutti_call){.timeout_ms = 5});
	expect_route("window", &args, &(tutti_call){.work = &work});
	expect_route("window", &args, &(tutti_call){.done = done});
	expect_route("window", &args, &(tutti_call){.work = &work, .done = done});
	expect_route("window", &args, &(tutti_call){.work = &work, .label = "named"});
}

static void test_in_place(void **state)
{
	struct call_args args = sum();
	tutti_work *work;

	args.collective = COLL_ALL_TO_ALL;
	with_window();
	expect_route("window", &args, &(tutti_call){.work = &work}); /* it copies what it sends */
	without_window();
	expect_route("messages", &args, NULL);
}

static void test_messages(void **state)
{
	struct call_args args = sum();
	tutti_work *work;

	without_window();
	expect_route("messages", &args, NULL);
	expect_route("messages", &args, &(tutti_call){.work = &work});
}

/* Of a communicator with a window each call is asked for where TUTTI_ALGO is set. */
static void test_rules(void **state)
{
	struct call_args args = sum();
	tutti_work *work;

	with_window();
	assert_int_equal(select_parse(&comm.select, "all_reduce=ring"), TUTTI_OK);
	expect_route("messages", &args, NULL);
	args.collective = COLL_ALL_GATHER;
	expect_route("window", &args, NULL);
	expect_route("window", &args, &(tutti_call){.work = &work});
}

static void test_allocation(void **state)
{
	struct call_args args = {.collective = COLL_MEM_ALLOC, .count = 4096};
	tutti_work *work;

	with_window();
	expect_route("window", &args, &(tutti_call){.work = &work});
	assert_int_equal(select_parse(&comm.select, "all_reduce=ring"), TUTTI_OK);
	expect_route("window", &args, &(tutti_call){.work = &work});
}

static void test_failed(void **state)
{
	struct call_args args = sum();
	struct route_call c = {.comm = &comm, .args = &args};

	with_window();
	engine.failure.status = TUTTI_ERR_PEER;
	assert_int_equal(route_find(&c), TUTTI_ERR_PEER);
	engine.failure.status = TUTTI_OK;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_window),     cmocka_unit_test(test_in_place),
		cmocka_unit_test(test_messages),   cmocka_unit_test(test_rules),
		cmocka_unit_test(test_allocation), cmocka_unit_test(test_failed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
