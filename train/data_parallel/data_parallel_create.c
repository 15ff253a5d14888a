/* Makes the replicas of DataParallel and Mirrored, and ends them. */
#include "core/callback.h"
#include "core/clock.h"
#include "core/thread.h"
#include "train/data_parallel/data_parallel.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- threads: one for each replica but the first, which sleeps between turns ---- */

struct replica_thread {
	struct replica_threads *threads;
	pthread_t thread;
	int replica;
};

struct replica_threads {
	int count, started;          /* replicas; threads that run */
	struct replica_thread *list; /* [0] has no thread */
	pthread_mutex_t lock;        /* of all below */
	pthread_cond_t begins, ends;
	uint64_t turn;
	int left; /* threads that have not ended this turn */
	bool is_over;
	replica_task task;
	void *arg;
};

/* False: there are no more turns. */
static bool data_parallel_create_wait_for_turn(struct replica_threads *threads, uint64_t *turn)
{
	pthread_mutex_lock(&threads->lock);
	while (threads->turn == *turn && !threads->is_over)
		pthread_cond_wait(&threads->begins, &threads->lock);
	bool is_over = threads->is_over;
	*turn = threads->turn;
	pthread_mutex_unlock(&threads->lock);
	return !is_over;
}

static void data_parallel_create_end_turn(struct replica_threads *threads)
{
	pthread_mutex_lock(&threads->lock);
	if (--threads->left == 0)
		pthread_cond_signal(&threads->ends);
	pthread_mutex_unlock(&threads->lock);
}

static void *data_parallel_create_replica_threads_thread_main(void *arg)
{
	struct replica_thread *own = arg;
	struct replica_threads *threads = own->threads;

	for (uint64_t turn = 0; data_parallel_create_wait_for_turn(threads, &turn);) {
		threads->task(threads->arg, own->replica);
		data_parallel_create_end_turn(threads);
	}
	return NULL;
}

void replica_threads_run(struct replica_threads *threads, replica_task task, void *arg)
{
	pthread_mutex_lock(&threads->lock);
	threads->task = task;
	threads->arg = arg;
	threads->left = threads->count - 1;
	threads->turn++;
	pthread_cond_broadcast(&threads->begins);
	pthread_mutex_unlock(&threads->lock);
	task(arg, 0);
	pthread_mutex_lock(&threads->lock);
	while (threads->left > 0)
		pthread_cond_wait(&threads->ends, &threads->lock);
	pthread_mutex_unlock(&threads->lock);
}

static int data_parallel_create_replica_threads_start_thread(struct replica_threads *threads,
							     int replica)
{
	struct replica_thread *own = &threads->list[replica];
	char name[24]; /* of which 15 are the name's: at most 1024 replicas */

	*own = (struct replica_thread){.threads = threads, .replica = replica};
	int error =
		thread_start(&own->thread, data_parallel_create_replica_threads_thread_main, own);
	if (error)
		return error;
	threads->started++;
	snprintf(name, sizeof name, "tutti-rep-%d", replica);
	pthread_setname_np(own->thread, name);
	return 0;
}

static tutti_status data_parallel_create_replica_threads_start(struct replica_threads *threads)
{
	int error = 0;

	for (int r = 1; r < threads->count && !error; r++)
		error = data_parallel_create_replica_threads_start_thread(threads, r);
	if (!error)
		return TUTTI_OK;
	return fail(TUTTI_ERR_SYSTEM, "Starting a thread for replica %d of %d failed: %s.",
		    threads->started + 1, threads->count, strerror(error));
}

static void data_parallel_create_replica_threads_destroy(struct replica_threads *threads)
{
	if (!threads)
		return;
	pthread_mutex_lock(&threads->lock);
	threads->is_over = true;
	pthread_cond_broadcast(&threads->begins);
	pthread_mutex_unlock(&threads->lock);
	for (int r = 1; r <= threads->started; r++)
		pthread_join(threads->list[r].thread, NULL);
	pthread_cond_destroy(&threads->begins);
	pthread_cond_destroy(&threads->ends);
	pthread_mutex_destroy(&threads->lock);
	free(threads->list);
	free(threads);
}

/* Starts count - 1 threads. MEMORY; SYSTEM: a thread cannot be started, and none is left. */
static tutti_status data_parallel_create_replica_threads_create(struct replica_threads **threads,
								int count)
{
	struct replica_threads *made = calloc(1, sizeof *made);
	struct replica_thread *list = calloc((size_t)count, sizeof *list);

	if (!made || !list) {
		free(made);
		free(list);
		return fail_no_memory("%d replicas", count);
	}
	made->count = count;
	made->list = list;
	pthread_mutex_init(&made->lock, NULL);
	pthread_cond_init(&made->begins, NULL);
	pthread_cond_init(&made->ends, NULL);
	tutti_status status = data_parallel_create_replica_threads_start(made);
	if (status != TUTTI_OK) {
		struct kept_error why = kept_error_of(status);
		data_parallel_create_replica_threads_destroy(made);
		return kept_error_return(&why);
	}
	*threads = made;
	return TUTTI_OK;
}

/* ---- memory ---- */

/* The memory of DataParallel: each replica has all parameters and all gradients in one block each,
 * which one collective moves. The trainer of replica 0 is alone in its communicator, and its
 * parameters are in the block of replica 0. */

static tutti_status data_parallel_create_copies_refuse(const char *what)
{
	return fail(TUTTI_ERR_UNSUPPORTED, "tutti_data_parallel_create: %s.", what);
}

/* UNSUPPORTED, INVALID: the config has what DataParallel does not do. Local. */
static tutti_status data_parallel_create_copies_check(const tutti_data_parallel_config *config)
{
	const tutti_train_config *train = config->train;

	for (int p = 0; p < config->model->param_count; p++)
		if (config->model->params[p].is_extern)
			return fail_invalid("tutti_data_parallel_create: parameter '%s' lies in "
					    "the caller's memory, but each replica needs its own: "
					    "register it with tutti_model_param.",
					    config->model->params[p].name);
	if (!train)
		return TUTTI_OK;
	if (train->strategy != TUTTI_DDP)
		return data_parallel_create_copies_refuse(
			"there is one optimizer, so nothing can be sharded or averaged: set "
			"train.strategy to TUTTI_DDP, or use tutti_mirrored_create or a "
			"trainer in each process");
	if (train->on_device)
		return data_parallel_create_copies_refuse(
			"replicas compute in host memory: set train.on_device to 0");
	if (train->grad_dtype != TUTTI_F32 || train->reduce_dtype != TUTTI_F32)
		return data_parallel_create_copies_refuse(
			"gradients are summed in f32: set train.grad_dtype and "
			"train.reduce_dtype to TUTTI_F32");
	if (train->deterministic == 2)
		return data_parallel_create_copies_refuse(
			"sums over replicas depend on their number: set train.deterministic "
			"to 1, for the same bits in every run");
	if (train->memory_limit)
		return data_parallel_create_copies_refuse(
			"copies of the model are not counted for a limit: set "
			"train.memory_limit to 0");
	return TUTTI_OK;
}

static tutti_status data_parallel_create_place_params(struct tutti_data_parallel *dp)
{
	dp->places = calloc((size_t)dp->model.param_count + 1, sizeof *dp->places);
	if (!dp->places)
		return fail_no_memory("a model of %d parameters", dp->model.param_count);
	for (int p = 0; p < dp->model.param_count; p++) {
		const struct param *param = &dp->model.params[p];
		dp->places[p] = dp->total;
		dp->total.data += whole_lines(param->count * dtype_bytes(dp->train.param_dtype));
		if (param_is_trained(param))
			dp->total.grad += whole_lines(param->count * sizeof(float));
	}
	return TUTTI_OK;
}

/* Collective among replicas. With memory of tutti_mem_alloc there are no copies in between. */
static tutti_status data_parallel_create_open_replica(struct replica *replica)
{
	const struct tutti_data_parallel *dp = replica->of;
	tutti_comm *comm = dp->alone;
	tutti_config config;

	if (dp->count > 1) {
		TRY(tutti_comm_config(replica->comm, &config));
		config.deterministic |= dp->train.deterministic;
		TRY(tutti_comm_split(replica->comm, 0, replica->view.index, &config,
				     &replica->copies));
		comm = replica->copies;
	}
	void *grads, *data = NULL;
	TRY(tutti_mem_alloc(&grads, dp->total.grad, comm));
	replica->grads = grads;
	if (!dp->config.share_params)
		TRY(tutti_mem_alloc(&data, dp->total.data, comm));
	else if (replica->view.index == 0)
		TRY(tutti_mem_alloc(&data, dp->total.data, dp->alone));
	replica->data = data;
	return TUTTI_OK;
}

static tutti_status data_parallel_create_copies_make_trainer(struct tutti_data_parallel *dp)
{
	struct replica *first = &dp->replicas[0];

	for (int p = 0; p < dp->model.param_count; p++) {
		struct param *param = &dp->model.params[p];
		param->is_extern = true;
		param->dtype = dp->train.param_dtype;
		param->data = first->data + dp->places[p].data;
		param->grad = param_is_trained(param) ? first->grads + dp->places[p].grad : NULL;
	}
	return tutti_trainer_create(&first->trainer, &dp->model, dp->alone, &dp->train);
}

static tutti_status data_parallel_create_copies_create(struct tutti_data_parallel *dp)
{
	tutti_config callers;

	TRY(tutti_comm_config(dp->replicas[0].comm, &callers));
	const tutti_config config = {.world_size = 1, .timeout_ms = callers.timeout_ms};
	TRY(data_parallel_create_place_params(dp));
	TRY(tutti_init(&dp->alone, &config));
	TRY(replicas_run(dp, data_parallel_create_open_replica));
	return data_parallel_create_copies_make_trainer(dp);
}

/* Makes memory, communicators and the trainer of replica 0. */
static void data_parallel_create_copies_destroy(struct tutti_data_parallel *dp)
{
	for (int r = 0; r < dp->count; r++) {
		struct replica *replica = &dp->replicas[r];
		if (replica->data)
			tutti_mem_free(replica->data);
		if (replica->grads)
			tutti_mem_free(replica->grads);
		tutti_comm_destroy(replica->copies);
	}
	tutti_comm_destroy(dp->alone);
	free(dp->places);
}

static size_t data_parallel_create_copies_elements(const struct tutti_data_parallel *dp,
						   bool trained_only)
{
	size_t sum = 0;

	for (int p = 0; p < dp->model.param_count; p++)
		if (!trained_only || param_is_trained(&dp->model.params[p]))
			sum += dp->model.params[p].count;
	return sum;
}

static size_t data_parallel_create_param_bytes(const struct tutti_data_parallel *dp)
{
	return data_parallel_create_copies_elements(dp, false) * dtype_bytes(dp->train.param_dtype);
}

static size_t data_parallel_create_grad_bytes(const struct tutti_data_parallel *dp)
{
	return data_parallel_create_copies_elements(dp, true) * sizeof(float);
}

/* Copies go by communicators of their own, on which threads never wait for long: so this is looked
 * at between calls, and all replicas see the same. */
tutti_status copies_check_comms(const struct tutti_data_parallel *dp)
{
	for (int r = 0; r < dp->count; r++) {
		const tutti_comm *comm = dp->replicas[r].comm;
		tutti_status status = tutti_comm_status(comm);
		if (status != TUTTI_OK)
			return tutti_set_error(status, tutti_comm_error(comm));
	}
	return TUTTI_OK;
}

tutti_status copies_replicate(struct replica *replica)
{
	const struct tutti_data_parallel *dp = replica->of;
	const tutti_call call = {.label = "parameters to replicas"};
	bool is_first = replica->view.index == 0;

	if (dp->config.share_params || dp->count == 1)
		return TUTTI_OK;
	double since = clock_now_seconds();
	TRY(tutti_broadcast(replica->data, replica->data, dp->total.data, TUTTI_U8, 0,
			    replica->copies, &call));
	replica->sent.exposed_seconds += clock_now_seconds() - since;
	replica->sent.collectives++;
	if (is_first)
		replica->sent.sent_param_bytes +=
			(uint64_t)(dp->count - 1) * data_parallel_create_param_bytes(dp);
	return TUTTI_OK;
}

tutti_status copies_reduce(struct replica *replica)
{
	const struct tutti_data_parallel *dp = replica->of;
	const tutti_call call = {.label = "gradients of replicas"};
	bool is_first = replica->view.index == 0;

	double since = clock_now_seconds();
	TRY(tutti_reduce(replica->grads, is_first ? replica->grads : NULL,
			 dp->total.grad / sizeof(float), TUTTI_F32, TUTTI_SUM, 0, replica->copies,
			 &call));
	replica->sent.exposed_seconds += clock_now_seconds() - since;
	replica->sent.collectives++;
	if (!is_first)
		replica->sent.sent_grad_bytes += data_parallel_create_grad_bytes(dp);
	return TUTTI_OK;
}

/* The trainer has zeroed those of replica 0. */
void copies_zero_grads(struct replica *replica)
{
	if (replica->view.index > 0)
		memset(replica->grads, 0, replica->of->total.grad);
}

const void *copies_param(const struct replica *replica, int param)
{
	const struct tutti_data_parallel *dp = replica->of;
	const char *data = replica->data ? replica->data : dp->replicas[0].data;

	return data + dp->places[param].data;
}

void *copies_grad(const struct replica *replica, int param)
{
	return replica->grads + replica->of->places[param].grad;
}

tutti_status copies_stats(const struct replica *replica, tutti_train_stats *stats)
{
	const struct tutti_data_parallel *dp = replica->of;

	*stats = (tutti_train_stats){0};
	if (replica->trainer)
		TRY(tutti_trainer_stats(replica->trainer, stats));
	stats->param_bytes = replica->data ? data_parallel_create_param_bytes(dp) : 0;
	stats->grad_bytes = data_parallel_create_grad_bytes(dp);
	stats->sent_param_bytes += replica->sent.sent_param_bytes;
	stats->sent_grad_bytes += replica->sent.sent_grad_bytes;
	stats->collectives += replica->sent.collectives;
	stats->exposed_seconds += replica->sent.exposed_seconds;
	return TUTTI_OK;
}

/* ---- create and destroy ---- */

enum { REPLICAS_MAX = 1024 };

static tutti_status data_parallel_create_check_functions(const char *function,
							 const tutti_data_parallel_config *c)
{
	const tutti_data_parallel_config zero = {0};

	if (!c || !c->model)
		return fail_invalid("%s needs a config with a model, not NULL.", function);
	if (!c->forward || !c->loss || !c->backward)
		return fail_invalid("%s needs the functions forward, loss and backward; %s is "
				    "NULL.",
				    function,
				    !c->forward ? "forward"
				    : !c->loss  ? "loss"
						: "backward");
	if (c->output_count == 0)
		return fail_invalid("%s: output_count is 0: an item has at least one output.",
				    function);
	if (memcmp(c->reserved, zero.reserved, sizeof zero.reserved) != 0)
		return fail_invalid("%s: config.reserved is not zero: zero-initialise it.",
				    function);
	return TUTTI_OK;
}

/* is_all: they are all ranks of their communicator. */
static tutti_status data_parallel_create_check_comms(const char *function, tutti_comm *const *comms,
						     int n, bool is_all)
{
	if (!comms || n < 1 || n > REPLICAS_MAX)
		return fail_invalid("%s needs the communicators of 1 to %d ranks; n is %d%s.",
				    function, REPLICAS_MAX, n, comms ? "" : " and comms NULL");
	for (int r = 0; r < n; r++) {
		if (!comms[r])
			return fail_invalid("%s: comms[%d] of %d is NULL.", function, r, n);
		if (tutti_size(comms[r]) != tutti_size(comms[0]) ||
		    (r > 0 && tutti_rank(comms[r]) <= tutti_rank(comms[r - 1])))
			return fail_invalid("%s: comms[%d] is rank %d of %d, behind rank %d of "
					    "%d: pass ranks of one communicator in order, as "
					    "tutti_init_all writes them.",
					    function, r, tutti_rank(comms[r]), tutti_size(comms[r]),
					    tutti_rank(comms[r ? r - 1 : 0]), tutti_size(comms[0]));
	}
	if (is_all && tutti_size(comms[0]) != n)
		return fail_invalid("%s: DataParallel is one process with all ranks of the "
				    "communicator: it has %d, n is %d.",
				    function, tutti_size(comms[0]), n);
	return TUTTI_OK;
}

static tutti_status data_parallel_create_check(const char *function, tutti_data_parallel **dp,
					       tutti_comm *const *comms, int n,
					       const tutti_data_parallel_config *config,
					       bool is_all)
{
	TRY(tutti_group_refuse(function));
	if (!dp)
		return fail_invalid("%s needs a place for the result, not NULL.", function);
	TRY(data_parallel_create_check_functions(function, config));
	return data_parallel_create_check_comms(function, comms, n, is_all);
}

static tutti_status data_parallel_create_refuse_memory(const char *what, const char *name, int n)
{
	return fail_invalid("tutti_mirrored_create: %s '%s' is one memory of the caller's, to "
			    "which each of %d replicas would write: %s.",
			    what, name, n,
			    strcmp(what, "Parameter") == 0
				    ? "register it with tutti_model_param"
				    : "leave it out of the model, and keep it in the program");
}

static tutti_status data_parallel_create_check_mirrored(const tutti_data_parallel_config *config,
							int n)
{
	const struct tutti_model *model = config->model;
	const tutti_train_config *train = config->train;

	if (train && train->strategy != TUTTI_DDP && train->strategy != TUTTI_ZERO1)
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "tutti_mirrored_create: functions of a replica read all "
			    "parameters at any time, and replicas are the same after each "
			    "step: set train.strategy to TUTTI_DDP or TUTTI_ZERO1.");
	if (train && train->on_device)
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "tutti_mirrored_create: replicas compute in host memory: set "
			    "train.on_device to 0.");
	if (n == 1)
		return TUTTI_OK;
	for (int p = 0; p < model->param_count; p++)
		if (model->params[p].is_extern)
			return data_parallel_create_refuse_memory("Parameter",
								  model->params[p].name, n);
	if (model->buffer_count > 0)
		return data_parallel_create_refuse_memory("Buffer", model->buffers[0].name, n);
	if (model->state_count > 0)
		return data_parallel_create_refuse_memory("State", model->states[0].name, n);
	return TUTTI_OK;
}

static tutti_status data_parallel_create_make_trainer(struct replica *replica)
{
	struct tutti_data_parallel *dp = replica->of;

	return tutti_trainer_create(&replica->trainer, dp->config.model, replica->comm, &dp->train);
}

static tutti_status data_parallel_create_build(struct tutti_data_parallel *dp,
					       tutti_comm *const *comms)
{
	dp->replicas = calloc((size_t)dp->count, sizeof *dp->replicas);
	if (!dp->replicas)
		return fail_no_memory("%d replicas", dp->count);
	for (int r = 0; r < dp->count; r++) {
		struct replica *replica = &dp->replicas[r];
		replica->of = dp;
		replica->comm = comms[r];
		replica->view.index = r;
		replica->view.count = dp->count;
		replica->view.arg = dp->config.arg;
	}
	TRY(model_copy(&dp->model, dp->config.model));
	TRY(data_parallel_create_replica_threads_create(&dp->threads, dp->count));
	return dp->is_mirrored ? replicas_run(dp, data_parallel_create_make_trainer)
			       : data_parallel_create_copies_create(dp);
}

/* The config is checked. */
static tutti_status data_parallel_create_any(tutti_data_parallel **dp, tutti_comm *const *comms,
					     int n, const tutti_data_parallel_config *config,
					     bool is_mirrored)
{
	struct tutti_data_parallel *made = calloc(1, sizeof *made);

	if (!made)
		return fail_no_memory("%d replicas", n);
	made->config = *config;
	if (config->train)
		made->train = *config->train;
	made->count = n;
	made->is_mirrored = is_mirrored;
	made->owner = getpid();
	tutti_status status = data_parallel_create_build(made, comms);
	if (status != TUTTI_OK) {
		struct kept_error why = kept_error_of(status);
		tutti_data_parallel_destroy(made);
		return kept_error_return(&why);
	}
	made->config.model = NULL; /* the caller's may go now */
	made->config.train = NULL;
	*dp = made;
	return TUTTI_OK;
}

tutti_status tutti_data_parallel_create(tutti_data_parallel **dp, tutti_comm *const *comms, int n,
					const tutti_data_parallel_config *config)
{
	TRY(data_parallel_create_check("tutti_data_parallel_create", dp, comms, n, config, true));
	TRY(data_parallel_create_copies_check(config));
	return data_parallel_create_any(dp, comms, n, config, false);
}

tutti_status tutti_mirrored_create(tutti_data_parallel **dp, tutti_comm *const *comms, int n,
				   const tutti_data_parallel_config *config)
{
	const char *const function = "tutti_mirrored_create";

	TRY(data_parallel_create_check(function, dp, comms, n, config, false));
	if (config->share_params)
		return fail_invalid("%s: share_params is for DataParallel: replicas of Mirrored "
				    "keep their own parameters.",
				    function);
	TRY(data_parallel_create_check_mirrored(config, n));
	return data_parallel_create_any(dp, comms, n, config, true);
}

void tutti_data_parallel_destroy(tutti_data_parallel *dp)
{
	if (!dp || dp->owner != getpid()) /* the threads, and what they use, are the parent's */
		return;
	if (callback_refuses("tutti_data_parallel_destroy"))
		return;
	if (dp->is_busy) {
		callback_keep("tutti_data_parallel_destroy",
			      "a function of a replica runs, or was left by longjmp");
		atomic_store(&dp->was_kept, true);
		return;
	}
	data_parallel_create_replica_threads_destroy(dp->threads);
	for (int r = 0; dp->replicas && r < dp->count; r++)
		tutti_trainer_destroy(dp->replicas[r].trainer);
	if (!dp->is_mirrored && dp->replicas)
		data_parallel_create_copies_destroy(dp);
	model_finish(&dp->model);
	free(dp->replicas);
	free(dp->outputs);
	free(dp->output_grads);
	free(dp);
}
