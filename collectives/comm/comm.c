/* A communicator from its first byte to its last: made empty, described (describe.c), introduced to
 * the others (topology.c), then its engine is started. Other ranks see it only then. */
#include "collectives/comm/join.h"
#include "collectives/control/control.h"
#include "collectives/engine/engine.h"
#include "collectives/trace/trace.h"

#include "core/clock.h"
#include "core/forks.h"
#include "core/log.h"
#include "core/poison.h"
#include "transport/guarded.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONNECT_MS    20000
#define WINDOW_NS_MAX UINT64_C(10000000000)

/* The copy has no secret: none is needed once the ranks have met. */
static bool comm_copy_texts(struct comm_settings *settings, const char *filter)
{
	struct env *env = &settings->env;
	const char **texts[] = {&env->transports, &env->transport_plugin, &env->algo,
				&env->address,    &env->host_id,          &env->trace_dir};
	bool is_whole = true;

	env->secret = env->secret_file = env->log = env->simd = NULL;
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		const char *text = *texts[i];
		*texts[i] = text ? strdup(text) : NULL;
		is_whole &= !text || *texts[i];
	}
	settings->filter = filter ? strdup(filter) : NULL;
	return is_whole && (!filter || settings->filter);
}

static void comm_free_texts(struct comm_settings *settings)
{
	const struct env *env = &settings->env;
	const char *texts[] = {env->transports, env->transport_plugin, env->algo,
			       env->address,    env->host_id,          env->trace_dir,
			       settings->filter};

	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
		free((void *)(uintptr_t)texts[i]);
}

tutti_status comm_new(struct tutti_comm **out, const tutti_config *config, const struct env *env,
		      int rank, int size)
{
	struct tutti_comm *comm = calloc(1, sizeof *comm);
	if (!comm)
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory for a communicator", rank);
	forks_watch();
	comm->rank = rank;
	comm->size = size;
	comm->reach.window_refusal = -1;
	comm->place.local_size = comm->place.num_nodes = comm->place.ranks_on_host = 1;
	comm->place.cores = wait_cores();
	comm->settings.env = *env;
	comm->settings.timeout_ms = config->timeout_ms ? config->timeout_ms : (int)env->timeout_ms;
	comm->settings.deterministic = config->deterministic;
	comm->settings.device = config->device - 1;
	comm->settings.device_memory = config->device > 0;
	if (config->name)
		snprintf(comm->settings.name, sizeof comm->settings.name, "%s", config->name);
	if (!comm_copy_texts(&comm->settings,
			     config->transports ? config->transports : env->transports)) {
		comm_free(comm);
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory for a communicator", rank);
	}
	*out = comm;
	return TUTTI_OK;
}

tutti_config comm_config(const struct tutti_comm *comm)
{
	return (tutti_config){.transports = comm->settings.filter,
			      .timeout_ms = comm->settings.timeout_ms,
			      .deterministic = comm->settings.deterministic,
			      .device =
				      comm->settings.device_memory ? comm->settings.device + 1 : 0,
			      .name = comm->settings.name[0] ? comm->settings.name : NULL};
}

tutti_status comm_keep_origin(struct tutti_comm *comm, const struct job *job)
{
	comm->recovery.origin = origin_new(job);
	return comm->recovery.origin
		       ? TUTTI_OK
		       : fail(TUTTI_ERR_MEMORY, "rank %d: no memory to join", comm->rank);
}

struct window_config comm_window_config(struct tutti_comm *comm)
{
	return (struct window_config){
		.rank = comm->rank,
		.size = comm->size,
		.comm_id = {comm->identity.id[0], comm->identity.id[1]},
		.window_bytes = (size_t)comm->settings.env.window_bytes,
		.policy = wait_policy_on(comm->place.ranks_on_host, comm->place.cores),
		/* A part of the ranks does not see where the others are. */
		.spreads = comm->settings.env.spread && comm->size >= comm->place.ranks_on_host,
		/* With more of them slots are as fast, or faster. */
		.read_bytes = comm->size == 2 ? (size_t)comm->settings.env.read : 0,
		.cores = comm->place.cores,
		.refusal = &comm->reach.window_refusal};
}

void comm_open_window(struct tutti_comm *comm, uint64_t deadline_ns, bool (*is_over)(void *arg),
		      void *arg)
{
	uint64_t now = clock_now_ns(), left = deadline_ns > now ? (deadline_ns - now) / 2 : 0;

	if (!comm->reach.may_have_window)
		return;
	struct window_config config = comm_window_config(comm);
	if (window_join(&comm->window, &config, now + (left < WINDOW_NS_MAX ? left : WINDOW_NS_MAX),
			is_over, arg) != TUTTI_OK)
		log_info("no window, messages instead: %s", last_error());
}

static void comm_end_refusal(struct tutti_comm *comm)
{
	if (comm->reach.window_refusal >= 0)
		close(comm->reach.window_refusal);
	comm->reach.window_refusal = -1;
}

void comm_keep_window(struct tutti_comm *comm, bool all_have_it)
{
	comm_end_refusal(comm);
	if (all_have_it) {
		consensus_rest(comm->recovery.consensus);
		return;
	}
	window_destroy(comm->window);
	comm->window = NULL;
}

uint32_t comm_has(const struct tutti_comm *comm)
{
	uint32_t levels = comm->device ? device_levels(comm->device) : 0;

	return (comm->window ? HAS_WINDOW : 0u) | (comm->device ? HAS_DEVICE : 0u) |
	       levels << HAS_LEVELS_SHIFT;
}

void comm_keep_device(struct tutti_comm *comm, uint32_t all_have)
{
	if (comm->device && all_have & HAS_DEVICE) {
		device_agree(comm->device, all_have >> HAS_LEVELS_SHIFT);
		return;
	}
	device_close(comm->device);
	comm->device = NULL;
}

void comm_keep(struct tutti_comm *comm, uint32_t all_have)
{
	comm_keep_window(comm, all_have & HAS_WINDOW);
	comm_keep_device(comm, all_have);
}

/* A window's ranks have its board. The others make a ring. */
static tutti_status comm_open_control(struct tutti_comm *comm, struct control **control)
{
	struct control_config config = {.job = {comm->parent.job, comm->parent.numbers},
					.rank = comm->rank,
					.size = comm->size,
					.endpoint = comm->reach.control_endpoint,
					.peers = comm->reach.peers,
					.recorder = comm->calls.recorder,
					.silence_ms = (int)comm->settings.env.silence_ms};

	comm->reach.control_endpoint = NULL;
	if (config.endpoint && comm->window) {
		transport_destroy(config.endpoint);
		free(comm->reach.peers);
		comm->reach.peers = NULL;
	}
	if (comm->size == 1)
		return TUTTI_OK;
	if (comm->window)
		return control_share(control, window_board(comm->window), &config);
	return control_create(control, &config);
}

/* Other processes see a hash of the id: enough to tell communicators apart, too little to join. */
/* A trace has room for so many algorithms, and for names so long. More is another TRACE_VERSION. */
_Static_assert(ALGORITHMS <= TRACE_ALGORITHMS, "TRACE_ALGORITHMS in trace.h is too small");
#define CHECK_NAME(COLLECTIVE, collective, name, ...)                                              \
	_Static_assert(sizeof #name <= sizeof((struct trace_page *)0)->algorithms[0],              \
		       #name " is too long for a trace");
#define CHECK_NOTHING(COLLECTIVE)
ALGORITHM_TABLE(CHECK_NAME, CHECK_NOTHING)
#undef CHECK_NAME
#undef CHECK_NOTHING

static tutti_status comm_open_trace(struct tutti_comm *comm)
{
	struct trace_about about = {.name = (comm->identity.id[0] ^ comm->identity.id[1] >> 7) *
					    0x9e3779b97f4a7c15u,
				    .rank = comm->rank,
				    .size = comm->size,
				    .node_rank = comm->place.node_rank,
				    .num_nodes = comm->place.num_nodes};

	snprintf(about.title, sizeof about.title, "%s", comm->settings.name);
	if (comm->window)
		snprintf(about.way, sizeof about.way, "window");
	else
		transport_names(comm->reach.transports, comm->reach.transport_count, about.way,
				sizeof about.way);
	return trace_open(&comm->calls.trace, &about, algorithm_name);
}

static tutti_status comm_start_engine(struct tutti_comm *comm, const struct engine_config *config)
{
	tutti_status status = engine_create(&comm->engine, config);
	if (status != TUTTI_OK)
		control_destroy(config->control);
	else if (config->control)
		status = engine_open_control(comm->engine);
	return status;
}

/* All neighbours have started, or one has failed to start and may never connect: this is short. */
tutti_status comm_connect(struct tutti_comm *comm, uint64_t deadline_ns, bool (*is_over)(void *arg),
			  void *arg)
{
	uint64_t soon = deadline_after_ms(CONNECT_MS);
	return engine_wait_control(comm->engine, soon < deadline_ns ? soon : deadline_ns, is_over,
				   arg);
}

tutti_status comm_start(struct tutti_comm *comm)
{
	struct engine_config config = {
		.rank = comm->rank,
		.size = comm->size,
		.endpoints = comm->reach.endpoints,
		.endpoint_count = comm->reach.endpoint_count,
		.routes = comm->reach.routes,
		.window = comm->window,
		.slice_bytes = (size_t)comm->settings.env.slice_bytes,
		.scratch_bytes = (size_t)comm->settings.env.scratch_bytes,
		.linger_ms = (int)comm->settings.env.reconnect_ms,
		.policy = wait_policy_on(comm->place.ranks_on_host, comm->place.cores),
		.helper_policy = wait_policy_on(2 * comm->place.ranks_on_host, comm->place.cores)};
	if (!comm->window) {
		memcpy(config.near, comm->place.near, sizeof config.near);
		config.ranks_near_count = comm->place.ranks_near_count;
		config.ranks_near_me = comm->place.local_rank;
	}
	comm->calls.own_recorder = comm->window ? NULL : recorder_new();
	comm->calls.recorder = comm->window ? board_recorder(window_board(comm->window))
					    : comm->calls.own_recorder;
	if (!comm->calls.recorder)
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory for a flight recorder",
			    comm->rank);
	TRY(comm_open_trace(comm));
	if (comm->device)
		config.device = (struct engine_device){device_fail, device_runs, device_differs,
						       comm->device,
						       device_stages(comm->device, comm->size)};
	config.timeout_ms = comm->settings.timeout_ms;
	config.trace = comm->calls.trace;
	config.trace_dir = comm->settings.env.trace_dir;
	memcpy(config.name, comm->settings.name, sizeof config.name);
	if (!comm->parent.job)
		comm->parent.job = job_new(comm->size);
	if (!comm->parent.job)
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory for its job", comm->rank);
	TRY(comm_open_control(comm, &config.control));
	TRY(comm_start_engine(comm, &config));
	free(comm->reach.routes);
	comm->reach.routes = NULL;
	comm->select.size = comm->size;
	comm->select.has_window = comm->window != NULL;
	comm->select.deterministic = comm->settings.deterministic;
	comm->select.slice_bytes = (size_t)comm->settings.env.slice_bytes;
	comm->select.scratch_bytes = (size_t)comm->settings.env.scratch_bytes;
	struct links links =
		comm->select.links; /* a parent's; else the defaults until they are measured */
	if (links.gamma == 0)
		links = links_default();
	select_prepare(&comm->select, &links);
	log_info("rank %d of %d, node %d of %d, window %s%s, %d rank%s on %d core%s", comm->rank,
		 comm->size, comm->place.node_rank, comm->place.num_nodes,
		 comm->window ? "on" : "off", comm->device ? ", GPUs on" : "",
		 comm->place.ranks_on_host, comm->place.ranks_on_host == 1 ? "" : "s",
		 comm->place.cores, comm->place.cores == 1 ? "" : "s");
	return TUTTI_OK;
}

void comm_close(struct tutti_comm *comm)
{
	char message[ERROR_BYTES];

	if (comm->is_left)
		return;
	snprintf(message, sizeof message, "%s", last_error());
	if (comm->window && consensus_is_at_rest(comm->recovery.consensus))
		board_tell_consensus(window_board(comm->window), NULL, 0);
	if (comm->engine) {
		engine_show_failure(comm->engine);
		comm->is_left = !engine_destroy(comm->engine);
		if (comm->is_left)
			return;
	} else {
		window_destroy(comm->window);
		for (int i = 0; i < comm->reach.endpoint_count; i++)
			transport_destroy(comm->reach.endpoints[i]);
	}
	device_close(comm->device);
	comm->device = NULL;
	if (comm->reach.control_endpoint)
		transport_destroy(comm->reach.control_endpoint);
	comm->reach.control_endpoint = NULL;
	comm->engine = NULL;
	comm->window = NULL;
	comm->reach.endpoint_count = 0;
	if (message[0])
		fail(TUTTI_ERR_INTERNAL, "%s", message); /* kept: the caller knows the status */
}

void comm_free(struct tutti_comm *comm)
{
	if (!comm)
		return;
	comm_close(comm);
	if (comm->is_left)
		return;
	comm_end_refusal(comm);
	plan_cache_free(comm);
	consensus_drop(comm->recovery.consensus);
	for (int i = 0; i < comm->recovery.ancestor_count; i++)
		consensus_drop(comm->recovery.ancestors[i]);
	free(comm->recovery.ancestors);
	origin_drop(comm->recovery.origin);
	recorder_free(comm->calls.own_recorder);
	trace_close(comm->calls.trace);
	for (int side = 0; side < 2; side++)
		free(comm->calls.packed[side]);
	free(comm->reach.routes);
	free(comm->reach.peers);
	free(comm->reach.direct);
	free(comm->parent.ranks);
	free(comm->parent.numbers);
	job_drop(comm->parent.job);
	comm_free_texts(&comm->settings);
	poison(comm, sizeof *comm); /* a layer above may still know it */
	free(comm);
	forks_forget();
}
