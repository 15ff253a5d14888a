// For test_callback.sh: callback_main ROW HOW. A program of C++ whose callback does not return: HOW
// is throw, exit (pthread_exit) or cancel (pthread_cancel). ROW is the callback; `list` prints all
// rows with the thread that calls them: the program's, which would catch an exception, or one of
// the library; and with the callback's name.
#include <tutti/parallel.h>
#include <tutti/rpc.h>
#include <tutti/train.h>
#include <tutti/tutti.h>

#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>

enum { COUNT = 1000, CAUGHT = 7 };

static const char *how, *leaving; // leaving: the callback that does not return
static int leaving_replica;

static void leave()
{
	if (std::strcmp(how, "throw") == 0)
		throw std::runtime_error("this callback throws");
	if (std::strcmp(how, "exit") == 0)
		pthread_exit(nullptr);
	pthread_cancel(pthread_self());
	pthread_testcancel();
}

static void leave_if(const char *name)
{
	if (std::strcmp(leaving, name) == 0)
		leave();
}

static void must(tutti_status status)
{
	if (status == TUTTI_OK)
		return;
	std::fprintf(stderr, "%s\n", tutti_comm_error(nullptr));
	_exit(3);
}

static void reduce(void *, const void *, size_t, tutti_dtype, void *)
{
	leave();
}

static void all_reduce(tutti_comm *comm, tutti_op op, const tutti_call *call)
{
	static float x[2][COUNT];
	tutti_work *work = nullptr;
	tutti_call own = {};

	if (call)
		own = *call, own.work = &work;
	must(tutti_all_reduce(x[tutti_rank(comm)], x[tutti_rank(comm)], COUNT, TUTTI_F32, op, comm,
			      call ? &own : nullptr));
	must(tutti_work_wait(&work, 0));
}

// As a blocking call and as an asynchronous one, which this thread or the helper carries out.
static void row_reduce(tutti_comm *comm)
{
	static tutti_op op;
	static std::once_flag once;

	std::call_once(once, [] { must(tutti_op_create(&op, "mine", reduce, nullptr)); });
	all_reduce(comm, op, nullptr);
}

static void done(void *, tutti_status)
{
	leave();
}

static void row_done(tutti_comm *comm)
{
	tutti_call call = {};

	call.done = done;
	all_reduce(comm, TUTTI_SUM, &call);
	sleep(30); // the callback ends the process
}

static void row_done_of_group(tutti_comm *)
{
	tutti_call call = {};

	call.done = done;
	must(tutti_group_begin());
	must(tutti_group_end(&call));
}

static tutti_status block(void *, int, void *, size_t)
{
	leave();
	return TUTTI_OK;
}

static void row_gather_each(tutti_comm *comm)
{
	float x[COUNT] = {};

	must(tutti_all_gather_each(x, COUNT, TUTTI_F32, block, nullptr, comm, nullptr));
}

static void row_scatter_each(tutti_comm *comm)
{
	float x[COUNT] = {};

	must(tutti_reduce_scatter_each(x, COUNT, TUTTI_F32, TUTTI_SUM, block, nullptr, comm,
				       nullptr));
}

static void row_pipeline(tutti_comm *comm)
{
	tutti_axis axis = {"pp", 2};
	tutti_mesh *mesh;
	tutti_pipeline *pipeline;
	tutti_pipeline_config config = {};

	config.schedule = TUTTI_ZERO_BUBBLE;
	config.micro_batches = 2;
	config.count = COUNT;
	config.forward = [](void *, int, int, const void *, void *) {
		leave_if("forward");
		return TUTTI_OK;
	};
	config.backward = [](void *, int, int, const void *, void *) {
		leave_if("backward");
		return TUTTI_OK;
	};
	config.backward_weights = [](void *, int, int) {
		leave_if("backward_weights");
		return TUTTI_OK;
	};
	must(tutti_mesh_create(&mesh, comm, &axis, 1));
	must(tutti_pipeline_create(&pipeline, mesh, &config));
	must(tutti_pipeline_run(pipeline));
}

static tutti_status replica_function(const tutti_replica *replica, const char *name)
{
	if (replica->index == leaving_replica)
		leave_if(name);
	return TUTTI_OK;
}

static void row_replicas(tutti_comm **comms)
{
	const int64_t shape = 4;
	float items[2] = {};
	tutti_data_parallel *dp;
	tutti_data_parallel_config config = {};
	tutti_data_parallel_batch batch = {};
	tutti_optimizer sgd = {};

	sgd.kind = TUTTI_SGD;
	config.forward = [](tutti_replica *r) { return replica_function(r, "forward"); };
	config.loss = [](tutti_replica *r) { return replica_function(r, "loss"); };
	config.backward = [](tutti_replica *r) { return replica_function(r, "backward"); };
	config.input_bytes = sizeof items[0];
	config.output_count = 1;
	must(tutti_model_create(&config.model));
	tutti_model_param(config.model, tutti_model_unit(config.model, "unit"), "p", 1, &shape, 0);
	must(tutti_data_parallel_create(&dp, comms, 2, &config));
	if (std::strcmp(leaving, "run") == 0)
		must(tutti_data_parallel_run(
			dp, [](tutti_trainer *, int, void *) { return leave(), TUTTI_OK; },
			nullptr));
	batch.inputs = items;
	batch.items = 2;
	must(tutti_data_parallel_step(dp, &batch, &sgd, 1, nullptr));
}

static void row_spawn()
{
	must(tutti_spawn([](int, void *) { return leave(), 0; }, nullptr, 2));
}

static void row_main()
{
	char name[] = "callback_main", *argv[] = {name, nullptr};

	tutti_main(1, argv, [](int, char **) { return leave(), 0; });
}

static void row_train_spawn()
{
	tutti_train_options options = {};
	int code;

	must(tutti_train_spawn(
		&options, [](void *) { return leave(), 0; }, nullptr, &code));
}

static tutti_status rpc_function(void *, const tutti_rpc_request *, tutti_rpc_reply *)
{
	leave_if("function");
	return TUTTI_OK;
}

static void rpc_leave(void *)
{
	leave();
}

// tutti_rpc_reply_pieces copies a short answer and releases it at once.
static tutti_status rpc_pieces(void *, const tutti_rpc_request *, tutti_rpc_reply *reply)
{
	tutti_rpc_piece piece = {"x", 1};

	return tutti_rpc_reply_pieces(reply, &piece, 1, rpc_leave, nullptr);
}

static void call_rpc(tutti_rpc *rpc, const char *name)
{
	tutti_rpc_options options = {};

	options.timeout_ms = 30000; // the callback ends the process
	if (std::strcmp(name, "done") == 0) {
		options.done = done;
		must(tutti_rpc_call_async(rpc, 0, "short", nullptr, 0, nullptr, &options, nullptr));
		sleep(30);
	}
	must(tutti_rpc_call(rpc, 0, name, nullptr, 0, nullptr, &options));
}

static void release_rpc(tutti_rpc *rpc)
{
	static float value;
	tutti_rpc_param param = {};
	tutti_rpc_ref ref;
	int number;

	if (std::strcmp(leaving, "object") == 0) {
		must(tutti_rpc_ref_create(rpc, nullptr, rpc_leave, &ref));
		must(tutti_rpc_ref_release(rpc, &ref));
	}
	param.name = "p";
	param.values = &value;
	param.count = 1;
	param.release = rpc_leave;
	must(tutti_rpc_param_add(rpc, &param, &number));
	must(tutti_rpc_param_remove(rpc, number));
}

// Rank 1 leaves at once where it is to be told of as dead, and else only joins.
static void row_rpc(tutti_comm *comm)
{
	static const tutti_rpc_function functions[] = {
		{"function", rpc_function, nullptr, 0, {}},
		{"short", rpc_function, nullptr, TUTTI_RPC_SHORT, {}},
		{"pieces", rpc_pieces, nullptr, 0, {}}};
	tutti_rpc_config config = {};
	tutti_rpc *rpc;

	config.functions = functions;
	config.num_functions = 3;
	config.died = [](void *, int) { leave(); };
	must(tutti_rpc_create(&rpc, comm, &config));
	must(tutti_barrier(comm, nullptr)); // create of rank 0 would fail if rank 1 left before
	if (tutti_rank(comm) == 1) {
		if (std::strcmp(leaving, "died") == 0)
			tutti_rpc_abort(rpc);
		sleep(30);
	}
	if (std::strcmp(leaving, "object") == 0 || std::strcmp(leaving, "param") == 0)
		return release_rpc(rpc);
	if (std::strcmp(leaving, "died") == 0)
		sleep(30);
	call_rpc(rpc, leaving);
}

// callback_plugin.cc leaves. A thread arms what it sleeps on: no rank sends what these receive.
static void row_transport(tutti_comm *comm)
{
	std::string leaves = std::getenv("LEAVES");
	float x;

	all_reduce(comm, TUTTI_SUM, nullptr);
	if (leaves == "arm" || leaves == "event_fd")
		must(tutti_recv(&x, 1, TUTTI_F32, 1 - tutti_rank(comm), comm, nullptr));
	tutti_comm_destroy(comm);
}

// Both ranks of a communicator, rank 1 in a thread of the program.
template <typename Row> static void on_both(tutti_comm **comms, Row row)
{
	std::thread other([&] {
		try {
			row(comms[1]);
		} catch (const std::exception &) {
			_exit(CAUGHT);
		}
	});
	row(comms[0]);
	other.join();
}

struct row {
	const char *name, *thread;
	const char *callback; // what the message calls it
	const char *leaving;
	int replica;
	void (*local)();            // or ...
	void (*both)(tutti_comm *); // ... on both ranks, or ...
	void (*all)(tutti_comm **); // ... with both
};

static const struct row rows[] = {
	{"reduce", "own", "the reduction function of tutti_op_create", "", 0, nullptr, row_reduce,
	 nullptr},
	{"done", "library", "the done function of a tutti_call", "", 0, nullptr, row_done, nullptr},
	{"done_of_group", "own", "the done function of tutti_group_end", "", 0, nullptr,
	 row_done_of_group, nullptr},
	{"all_gather_each", "own", "fn of tutti_all_gather_each", "", 0, nullptr, row_gather_each,
	 nullptr},
	{"reduce_scatter_each", "own", "fn of tutti_reduce_scatter_each", "", 0, nullptr,
	 row_scatter_each, nullptr},
	{"pipeline_forward", "own", "forward of tutti_pipeline_config", "forward", 0, nullptr,
	 row_pipeline, nullptr},
	{"pipeline_backward", "own", "backward of tutti_pipeline_config", "backward", 0, nullptr,
	 row_pipeline, nullptr},
	{"pipeline_backward_weights", "own", "backward_weights of tutti_pipeline_config",
	 "backward_weights", 0, nullptr, row_pipeline, nullptr},
	{"replica_forward", "own", "forward of tutti_data_parallel_config", "forward", 0, nullptr,
	 nullptr, row_replicas},
	{"replica_loss", "own", "loss of tutti_data_parallel_config", "loss", 0, nullptr, nullptr,
	 row_replicas},
	{"replica_backward", "own", "backward of tutti_data_parallel_config", "backward", 0,
	 nullptr, nullptr, row_replicas},
	{"replica_of_thread", "library", "backward of tutti_data_parallel_config", "backward", 1,
	 nullptr, nullptr, row_replicas},
	{"replica_run", "own", "the function of tutti_data_parallel_run", "run", 0, nullptr,
	 nullptr, row_replicas},
	{"spawn", "child", "the function of tutti_spawn", "", 0, row_spawn, nullptr, nullptr},
	{"main", "own", "the function of tutti_main", "", 0, row_main, nullptr, nullptr},
	{"train_spawn", "own", "the function of tutti_train_spawn", "", 0, row_train_spawn, nullptr,
	 nullptr},
	{"rpc_function", "library", "function of tutti_rpc_function", "function", 0, nullptr,
	 row_rpc, nullptr},
	{"rpc_release", "library", "release of tutti_rpc_reply_pieces", "pieces", 0, nullptr,
	 row_rpc, nullptr},
	{"rpc_done", "library", "done of tutti_rpc_options", "done", 0, nullptr, row_rpc, nullptr},
	{"rpc_died", "library", "died of tutti_rpc_config", "died", 0, nullptr, row_rpc, nullptr},
	{"rpc_object", "own", "destroy of tutti_rpc_ref_create", "object", 0, nullptr, row_rpc,
	 nullptr},
	{"rpc_param", "own", "release of tutti_rpc_param", "param", 0, nullptr, row_rpc, nullptr},
	{"transport", "own", "", "", 0, nullptr, row_transport, nullptr},
};

static void run(const struct row &row)
{
	tutti_comm *comms[2];

	if (row.local)
		return row.local();
	must(tutti_init_all(comms, 2, nullptr));
	if (row.both)
		on_both(comms, row.both);
	else
		row.all(comms);
}

int main(int argc, char **argv)
{
	if (argc == 2)
		for (const struct row &row : rows)
			std::printf("%s %s %s\n", row.name, row.thread, row.callback);
	for (const struct row &row : rows) {
		if (argc != 3 || std::strcmp(row.name, argv[1]) != 0)
			continue;
		leaving = row.leaving;
		leaving_replica = row.replica;
		how = argv[2];
		try {
			run(row);
		} catch (const std::exception &error) {
			std::printf("the program has caught it: %s\n", error.what());
			return CAUGHT;
		}
		std::puts("the callback was not called");
		return 1;
	}
	return argc == 2 ? 0 : 2;
}
