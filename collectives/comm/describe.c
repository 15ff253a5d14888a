/* A rank's message to the others when it joins: its host, its settings, and the addresses of its
 * endpoints, which it opens for that. */
#include "collectives/comm/join.h"
#include "collectives/control/control.h"
#include "core/log.h"
#include "core/machine.h"
#include "core/memory/memory.h"
#include "transport/guarded.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Ranks share a host when they run on the same boot of a kernel and in the same network, for that
 * is where abstract sockets reach. */
static tutti_status describe_find_host_id(char *id, size_t bytes, const struct env *env)
{
	char boot[MACHINE_BOOT_BYTES] = "";

	TRY(machine_boot(boot));
	if (!boot[0])
		gethostname(boot, sizeof boot - 1);
	snprintf(id, bytes, "%s/%llu/%.24s", boot, (unsigned long long)machine_namespace("net"),
		 env->host_id ? env->host_id : "");
	return TUTTI_OK;
}

/* How long the consensus's connections wait for a rank that computes: each question has a deadline
 * of its own. */
#define CONSENSUS_MS (20 * 86400000)

static tutti_status describe_open_consensus_endpoint(struct tutti_endpoint **endpoint,
						     const struct tutti_transport *transport,
						     const struct tutti_endpoint_config *config)
{
	struct tutti_endpoint_config own = *config;

	own.comm_id[0] = ~own.comm_id[0];
	own.timeout_ms = CONSENSUS_MS;
	return transport_open(transport, endpoint, &own);
}

static tutti_status describe_open_consensus(struct tutti_comm *comm,
					    const struct tutti_transport *transport,
					    const struct tutti_endpoint_config *config)
{
	struct consensus_config consensus = {
		.rank = comm->rank, .size = comm->size, .timeout_ms = comm->settings.timeout_ms};

	if (transport)
		TRY(describe_open_consensus_endpoint(&consensus.endpoint, transport, config));
	return consensus_create(&comm->recovery.consensus, &consensus);
}

/* With ids of their own: else a transport would take the endpoints of a rank for one. */
static tutti_status describe_open_control(struct tutti_comm *comm,
					  const struct tutti_transport *transport,
					  const struct tutti_endpoint_config *config)
{
	struct tutti_endpoint_config own = *config;

	own.comm_id[1] = ~own.comm_id[1];
	TRY(transport_open(transport, &comm->reach.control_endpoint, &own));
	return describe_open_consensus(comm, transport, config);
}

struct tutti_endpoint_config comm_endpoint_config(const struct tutti_comm *comm)
{
	struct tutti_endpoint_config config = {
		.rank = comm->rank,
		.size = comm->size,
		.host_id = comm->place.host_id,
		.comm_id = {comm->identity.id[0], comm->identity.id[1]},
		.address = comm->settings.env.address,
		.timeout_ms = comm->settings.timeout_ms,
		.checksum = (int)comm->settings.env.checksum,
		.tls = (int)comm->settings.env.tls,
		.reconnect = (int)comm->settings.env.reconnect,
		.reconnect_ms = (int)comm->settings.env.reconnect_ms,
		.reconnect_tries = (int)comm->settings.env.reconnect_tries,
		.gid = (int)(comm->settings.env.verbs_gid + 1) % 256,
		.devices = comm->settings.env.verbs_devices,
		.is_named = comm->settings.filter && comm->settings.filter[0] != '^'};

	memcpy(config.key, comm->identity.key, sizeof config.key);
	return config;
}

tutti_status comm_wake_consensus(struct tutti_comm *comm)
{
	struct consensus *consensus = comm->recovery.consensus;
	struct tutti_endpoint_config config = comm_endpoint_config(comm);
	const struct comm_reach *reach = &comm->reach;
	struct tutti_endpoint *endpoint = NULL;

	if (!consensus_is_at_rest(consensus))
		return TUTTI_OK;
	tutti_status status = describe_open_consensus_endpoint(
		&endpoint, transport_widest(reach->transports, reach->transport_count), &config);
	consensus_wake(consensus, endpoint, status);
	board_tell_consensus(window_board(comm->window), endpoint ? endpoint->address : NULL,
			     endpoint ? endpoint->address_bytes : 0);
	return status;
}

/* Appends why one of count transports cannot be used, with its name; each may use an equal part of
 * why. */
static void describe_append_reason(char why[ERROR_BYTES], const char *name, int count)
{
	const char *reason = last_error();
	size_t used = strlen(why), n = strlen(name);
	bool has_name = strncmp(reason, name, n) == 0 && reason[n] == ':';

	snprintf(why + used, ERROR_BYTES - used, "%s%s%s%.*s", used ? "; " : "",
		 has_name ? "" : name, has_name ? "" : ": ", 400 / count,
		 reason[0] ? reason : "it gives no reason");
}

static tutti_status describe_open_endpoints(struct tutti_comm *comm)
{
	struct comm_reach *reach = &comm->reach;
	struct tutti_endpoint_config config = comm_endpoint_config(comm);
	const struct tutti_transport *list[TRANSPORTS_MAX];
	bool can_be_found = false;
	char why[ERROR_BYTES] = "";
	int count;

	TRY(transport_list(list, &count, comm->settings.filter, &comm->settings.env));
	for (int i = 0; i < count; i++) {
		last_error_clear();
		TRY(transport_open(list[i], &reach->endpoints[reach->endpoint_count], &config));
		if (reach->endpoints[reach->endpoint_count++]->address_bytes > 0)
			can_be_found = true;
		else
			describe_append_reason(why, list[i]->name, count);
		reach->transports[reach->transport_count++] = list[i];
	}
	if (!can_be_found && comm->size > 1)
		return fail(TUTTI_ERR_UNSUPPORTED, "no transport of rank %d can be used (%s): %s",
			    comm->rank, comm->settings.filter ? comm->settings.filter : "all", why);
	reach->may_have_window = transport_shares_memory(list, count);
	return describe_open_control(comm, transport_widest(list, count), &config);
}

static void describe_note_address(struct member_address *to, const struct tutti_endpoint *endpoint)
{
	to->bytes = (uint32_t)endpoint->address_bytes;
	memcpy(to->address, endpoint->address, endpoint->address_bytes);
}

/* Kinds of memory that this endpoint can be expected to map. Why one is not is logged. */
static uint32_t describe_find_maps(const struct tutti_comm *comm, struct tutti_endpoint *endpoint)
{
	uint32_t kinds = 0;
	void *map;

	if (!endpoint->transport->map || !endpoint->address_bytes || !comm->settings.env.dma_buf)
		return 0;
	for (int id = 0; id < TUTTI_MEMORY_KINDS; id++) {
		const struct memory_kind *kind = memory_kind(id);
		if (!kind || !kind->dma_buf_check)
			continue;
		if (kind->dma_buf_check(device_wanted(comm->settings.device)) == TUTTI_OK &&
		    transport_map(endpoint, id, NULL, 0, &map) == TUTTI_OK)
			kinds |= 1u << id;
		else
			log_info("%s memory of rank %d goes through copies in host memory: %s",
				 kind->name, comm->rank, last_error());
	}
	last_error_clear(); /* of no call */
	return kinds;
}

static void describe_open_device(struct tutti_comm *comm, struct member *m)
{
	struct device_config config = {.most = comm->size,
				       .ordinal = comm->settings.device,
				       .is_deterministic = comm->settings.deterministic,
				       .opens_buffers = comm->settings.env.cuda_ipc != 0,
				       .staging_bytes = (size_t)comm->settings.env.window_bytes};

	device_open(&comm->device, &m->gpu, &config);
	if (comm->device) /* children may be made by another thread */
		comm->settings.device = device_ordinal(comm->device);
}

static tutti_status describe_member(struct tutti_comm *comm, struct member *m)
{
#define VALUE(name, value) value,
	const struct env *env = &comm->settings.env;
	bool has_maps = false; /* of one endpoint alone: an engine keeps the mappings of one */
	const int64_t values[MEMBER_SETTINGS_COUNT] = {MEMBER_SETTINGS(VALUE)};
	const char *algo = env->algo ? env->algo : "";
	if (strlen(algo) >= sizeof m->algo)
		return fail(TUTTI_ERR_INVALID, "TUTTI_ALGO is longer than %zu bytes",
			    sizeof m->algo - 1);
	TRY(select_parse(&comm->select, algo));
	if (!comm->place.host_id[0]) /* else it is the parent's */
		TRY(describe_find_host_id(comm->place.host_id, sizeof comm->place.host_id, env));
	snprintf(m->version, sizeof m->version, "%s", TUTTI_VERSION);
	snprintf(m->host_id, sizeof m->host_id, "%s", comm->place.host_id);
	if (gethostname(m->host, sizeof m->host - 1) != 0)
		snprintf(m->host, sizeof m->host, "?");
	snprintf(m->algo, sizeof m->algo, "%s", algo);
	m->cpu_location = cpu_location_here();
	if (comm->place.has_no_thread)
		m->cpu_location.thread = 0;
	m->cpus = wait_cpus_here();
	memcpy(m->settings, values, sizeof values);
	TRY(describe_open_endpoints(comm));
	for (int i = 0; i < comm->reach.endpoint_count; i++) {
		struct member_address *a = &m->address[m->addresses++];
		snprintf(a->transport, sizeof a->transport, "%s", comm->reach.transports[i]->name);
		describe_note_address(a, comm->reach.endpoints[i]);
		if (!has_maps)
			a->maps = describe_find_maps(comm, comm->reach.endpoints[i]);
		has_maps |= a->maps != 0;
	}
	transport_names(comm->reach.transports, comm->reach.transport_count, m->transports,
			sizeof m->transports);
	describe_note_address(&m->control, comm->reach.control_endpoint);
	describe_note_address(&m->consensus, consensus_endpoint(comm->recovery.consensus));
	if (env->cuda > 1)
		describe_open_device(comm, m);
	return TUTTI_OK;
}

/* Opens no endpoint, but a setting that a larger world refuses is refused here too. */
static tutti_status describe_alone(struct tutti_comm *comm, struct member *m)
{
	const struct tutti_transport *list[TRANSPORTS_MAX];
	int count;

	TRY(transport_list(list, &count, comm->settings.filter, &comm->settings.env));
	TRY(describe_open_consensus(comm, NULL, NULL));
	TRY(select_parse(&comm->select, comm->settings.env.algo));
	if (comm->settings.env.cuda > 1)
		describe_open_device(comm, m);
	return TUTTI_OK;
}

/* A rank that fails here still tells the others, so none waits for it. */
tutti_status comm_describe(struct tutti_comm *comm, struct member *member)
{
	memset(member, 0, sizeof *member);
	if (comm->size == 1)
		return describe_alone(comm, member);
	tutti_status status = describe_member(comm, member);
	member->status = (int32_t)status;
	return status;
}
