/* Joining: ranks tell each other where they are, find their nodes and routes, open the window where
 * all share a node, and start the engine. Only then there is a communicator. */
#include "collectives/comm.h"

#include "core/clock.h"
#include "core/log.h"
#include "rendezvous/rendezvous.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONNECT_MS 20000

/* ---- what a rank is -------------------------------------------------------------------------- */

/* Ranks share a host when they run on the same boot of a kernel and in the same network, for that
 * is where abstract sockets reach. */
static void find_host_id(char *id, size_t bytes, const struct env *env)
{
	char boot[48] = "", net[40] = "";
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
	if (file) {
		if (!fgets(boot, sizeof boot, file))
			boot[0] = '\0';
		fclose(file);
		boot[strcspn(boot, "\n")] = '\0';
	}
	if (readlink("/proc/self/ns/net", net, sizeof net - 1) < 0)
		net[0] = '\0';
	if (!boot[0])
		gethostname(boot, sizeof boot - 1);
	snprintf(id, bytes, "%.40s/%.24s/%.24s", boot, net, env->host_id ? env->host_id : "");
}

/* Not the secret's: nobody needs it once the ranks have met. */
static bool copy_texts(struct tutti_comm *comm, const char *filter)
{
	const char **texts[] = {&comm->env.transports, &comm->env.transport_plugin, &comm->env.algo,
				&comm->env.address, &comm->env.host_id};
	bool is_whole = true;

	comm->env.secret = comm->env.secret_file = comm->env.log = NULL;
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		const char *text = *texts[i];
		*texts[i] = text ? strdup(text) : NULL;
		is_whole &= !text || *texts[i];
	}
	comm->filter = filter ? strdup(filter) : NULL;
	return is_whole && (!filter || comm->filter);
}

static void free_texts(struct tutti_comm *comm)
{
	const char *texts[] = {comm->env.transports, comm->env.transport_plugin, comm->env.algo,
			       comm->env.address,    comm->env.host_id,          comm->filter};
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
		free((void *)(uintptr_t)texts[i]);
}

tutti_status comm_new(struct tutti_comm **out, const tutti_config *config, const struct env *env,
		      int rank, int size)
{
	struct tutti_comm *comm = calloc(1, sizeof *comm);
	if (!comm)
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory for a communicator", rank);
	comm->rank = rank;
	comm->size = size;
	comm->local_size = comm->num_nodes = comm->crowd = 1;
	comm->env = *env;
	comm->timeout_ms = config->timeout_ms ? config->timeout_ms : (int)env->timeout_ms;
	comm->deterministic = config->deterministic;
	if (!copy_texts(comm, config->transports ? config->transports : env->transports)) {
		comm_free(comm);
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory for a communicator", rank);
	}
	*out = comm;
	return TUTTI_OK;
}

/* By tcp, which reaches everybody, or the first there is. Its id is another, lest a transport take
 * the two endpoints of a rank for one. */
static tutti_status open_control(struct tutti_comm *comm, const struct tutti_transport *const *list,
				 int count, const struct tutti_endpoint_config *config)
{
	const struct tutti_transport *best = list[0];
	struct tutti_endpoint_config own = *config;

	own.comm_id[1] = ~own.comm_id[1];
	for (int i = 0; i < count; i++)
		if (strcmp(list[i]->name, "tcp") == 0)
			best = list[i];
	return best->open(&comm->control_endpoint, &own);
}

static tutti_status open_endpoints(struct tutti_comm *comm)
{
	struct tutti_endpoint_config config = {.rank = comm->rank,
					       .size = comm->size,
					       .host_id = comm->host_id,
					       .comm_id = {comm->id[0], comm->id[1]},
					       .address = comm->env.address,
					       .timeout_ms = comm->timeout_ms};
	const struct tutti_transport *list[TRANSPORTS_MAX];
	int count;

	memcpy(config.key, comm->key, sizeof config.key);
	TRY(transport_list(list, &count, comm->filter, &comm->env));
	for (int i = 0; i < count; i++) {
		comm->may_window |= strcmp(list[i]->name, "shm") == 0;
		TRY(list[i]->open(&comm->endpoints[comm->endpoint_count], &config));
		comm->transports[comm->endpoint_count++] = list[i];
	}
	return open_control(comm, list, count, &config);
}

static tutti_status describe(struct tutti_comm *comm, struct member *m)
{
	const struct env *env = &comm->env;
	const char *algo = env->algo ? env->algo : "";
	if (strlen(algo) >= sizeof m->algo)
		return fail(TUTTI_ERR_INVALID, "TUTTI_ALGO is longer than %zu bytes",
			    sizeof m->algo - 1);
	TRY(select_parse(&comm->select, algo));
	if (!comm->host_id[0]) /* else it is the parent's */
		find_host_id(comm->host_id, sizeof comm->host_id, env);
	snprintf(m->version, sizeof m->version, "%s", tutti_version());
	snprintf(m->host_id, sizeof m->host_id, "%s", comm->host_id);
	snprintf(m->algo, sizeof m->algo, "%s", algo);
	m->window = env->window;
	m->window_bytes = env->window_bytes;
	m->scratch_bytes = env->scratch_bytes;
	m->slice_bytes = env->slice_bytes;
	m->deterministic = comm->deterministic;
	TRY(open_endpoints(comm));
	for (int i = 0; i < comm->endpoint_count; i++) {
		struct member_address *a = &m->address[m->addresses++];
		snprintf(a->transport, sizeof a->transport, "%s", comm->transports[i]->name);
		a->bytes = (uint32_t)comm->endpoints[i]->address_bytes;
		memcpy(a->address, comm->endpoints[i]->address, a->bytes);
		snprintf(m->transports + strlen(m->transports),
			 sizeof m->transports - strlen(m->transports), "%s%s", i ? "," : "",
			 comm->transports[i]->name);
	}
	const struct tutti_endpoint *control = comm->control_endpoint;
	m->control.bytes = (uint32_t)control->address_bytes;
	memcpy(m->control.address, control->address, control->address_bytes);
	return TUTTI_OK;
}

/* Opens nothing, but a setting that a larger world refuses is refused here too. */
static tutti_status describe_alone(struct tutti_comm *comm)
{
	const struct tutti_transport *list[TRANSPORTS_MAX];
	int count;

	TRY(transport_list(list, &count, comm->filter, &comm->env));
	return select_parse(&comm->select, comm->env.algo);
}

/* A rank that fails here still tells the others, so that none waits for it. */
tutti_status comm_describe(struct tutti_comm *comm, struct member *member)
{
	memset(member, 0, sizeof *member);
	if (comm->size == 1)
		return describe_alone(comm);
	tutti_status status = describe(comm, member);
	member->status = (int32_t)status;
	return status;
}

/* ---- who the others are ---------------------------------------------------------------------- */

static tutti_status differ(int rank, const char *what, const char *theirs, const char *ours)
{
	return fail(TUTTI_ERR_INVALID, "rank %d has %s %s, rank 0 has %s: all ranks need the same",
		    rank, what, theirs[0] ? theirs : "unset", ours[0] ? ours : "unset");
}

static tutti_status differ_number(int rank, const char *what, int64_t theirs, int64_t ours)
{
	char a[24], b[24];
	snprintf(a, sizeof a, "%lld", (long long)theirs);
	snprintf(b, sizeof b, "%lld", (long long)ours);
	return differ(rank, what, a, b);
}

static tutti_status check_alike(const struct member *members, int size)
{
	const struct member *m0 = &members[0];
	for (int r = 0; r < size; r++) {
		const struct member *m = &members[r];
		if (m->status != TUTTI_OK)
			return fail((tutti_status)m->status, "rank %d could not join: %s", r,
				    tutti_status_string((tutti_status)m->status));
		if (strcmp(m->version, m0->version) != 0)
			return differ(r, "Tutti", m->version, m0->version);
		if (strcmp(m->algo, m0->algo) != 0)
			return differ(r, "TUTTI_ALGO", m->algo, m0->algo);
		if (strcmp(m->transports, m0->transports) != 0)
			return differ(r, "transports", m->transports, m0->transports);
		if (m->window != m0->window)
			return differ_number(r, "TUTTI_WINDOW", m->window, m0->window);
		if (m->window_bytes != m0->window_bytes)
			return differ_number(r, "TUTTI_WINDOW_BYTES", m->window_bytes,
					     m0->window_bytes);
		if (m->scratch_bytes != m0->scratch_bytes)
			return differ_number(r, "TUTTI_SCRATCH_BYTES", m->scratch_bytes,
					     m0->scratch_bytes);
		if (m->slice_bytes != m0->slice_bytes)
			return differ_number(r, "TUTTI_SLICE_BYTES", m->slice_bytes,
					     m0->slice_bytes);
		if (m->deterministic != m0->deterministic)
			return differ_number(r, "config.deterministic", m->deterministic,
					     m0->deterministic);
	}
	return TUTTI_OK;
}

/* number[r]: rank r's node, counted in the order in which they first appear. Returns how many there
 * are. */
static int number_nodes(const struct member *members, int size, int *number, int *first)
{
	int nodes = 0;
	for (int r = 0; r < size; r++) {
		int k = 0;
		while (k < nodes && strcmp(members[first[k]].host_id, members[r].host_id) != 0)
			k++;
		if (k == nodes)
			first[nodes++] = r;
		number[r] = k;
	}
	return nodes;
}

/* Whether the ranks' nodes are as n says. */
static bool are_nodes(struct nodes n, const int *number, int size)
{
	for (int r = 0; r < size; r++)
		if (node_of(&n, r) != number[r])
			return false;
	return true;
}

/* Nodes of equally many ranks in a regular order, for the algorithms of two levels. */
static void find_order(struct tutti_comm *comm, const int *number)
{
	int count = comm->num_nodes, local = comm->size / count;
	struct nodes by_node = {count, local, local, 1}, in_turn = {count, local, 1, count};

	comm->select.num_nodes = count;
	if (count == 1 || local < 2 || count * local != comm->size)
		return;
	if (are_nodes(by_node, number, comm->size))
		comm->nodes = by_node;
	else if (are_nodes(in_turn, number, comm->size))
		comm->nodes = in_turn;
	else
		return;
	comm->select.nodes = &comm->nodes;
}

/* Neighbours in a node, and the first ranks of neighbouring nodes. first: of each node. */
static void find_partners(struct tutti_comm *comm, const int *number, const int *first)
{
	int other = comm->node_rank ^ 1, place = 0;

	comm->partners[LINK_LOCAL] = comm->partners[LINK_NET] = -1;
	for (int r = 0; r < comm->size; r++)
		if (number[r] == comm->node_rank && place++ == (comm->local_rank ^ 1))
			comm->partners[LINK_LOCAL] = r;
	if (comm->local_rank == 0 && other < comm->num_nodes)
		comm->partners[LINK_NET] = first[other];
}

static tutti_status find_nodes(struct tutti_comm *comm, const struct member *members)
{
	size_t n = (size_t)comm->size;
	int *number = malloc(2 * n * sizeof *number);
	if (!number)
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory for the nodes of %zu ranks",
			    comm->rank, n);
	comm->num_nodes = number_nodes(members, comm->size, number, number + n);
	comm->node_rank = number[comm->rank];
	comm->local_rank = comm->local_size = 0;
	for (int r = 0; r < comm->size; r++) {
		comm->local_rank += number[r] == comm->node_rank && r < comm->rank;
		comm->local_size += number[r] == comm->node_rank;
	}
	find_order(comm, number);
	find_partners(comm, number, number + n);
	free(number);
	return TUTTI_OK;
}

/* The best of the transports that reach the peer. */
static tutti_status find_route(struct tutti_comm *comm, const struct member *members, int peer)
{
	const struct member *m = &members[peer];
	struct route *route = &comm->routes[peer];
	int best = 0;

	for (int i = 0; i < comm->endpoint_count; i++) {
		const struct member_address *a = &m->address[i];
		struct tutti_endpoint *ep = comm->endpoints[i];
		if (a->bytes > TUTTI_ADDRESS_BYTES)
			return fail(TUTTI_ERR_INTERNAL, "rank %d sent an address of %u bytes", peer,
				    a->bytes);
		int reach = ep->transport->reach(ep, peer, a->address, a->bytes);
		if (reach <= best)
			continue;
		best = reach;
		*route = (struct route){.endpoint = ep, .address_bytes = a->bytes};
		memcpy(route->address, a->address, a->bytes);
	}
	if (!best)
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "rank %d cannot reach rank %d by any of its transports (%s)",
			    comm->rank, peer, m->transports);
	comm->kinds_in_place &= route->endpoint->transport->kinds;
	log_debug("rank %d is reached by %s", peer, route->endpoint->transport->name);
	return TUTTI_OK;
}

/* The control ring goes by one transport; where that does not reach, the ring is open. */
static void find_neighbour(struct tutti_comm *comm, const struct member *members, int i)
{
	int peer = (comm->rank + (i ? 1 : comm->size - 1)) % comm->size;
	const struct member_address *a = &members[peer].control;
	struct tutti_endpoint *ep = comm->control_endpoint;

	if (a->bytes > TUTTI_ADDRESS_BYTES || !ep->transport->reach(ep, peer, a->address, a->bytes))
		return;
	comm->neighbours[i] = (struct route){.endpoint = ep, .address_bytes = a->bytes};
	memcpy(comm->neighbours[i].address, a->address, a->bytes);
}

tutti_status comm_meet(struct tutti_comm *comm, const struct member *members)
{
	comm->kinds_in_place = ~0u;
	if (comm->size == 1)
		return TUTTI_OK;
	TRY(check_alike(members, comm->size));
	TRY(find_nodes(comm, members));
	if (comm->crowd < comm->local_size)
		comm->crowd = comm->local_size;
	comm->may_window = comm->may_window && comm->env.window && comm->num_nodes == 1;
	comm->routes = calloc((size_t)comm->size, sizeof *comm->routes);
	if (!comm->routes)
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory for %d routes", comm->rank,
			    comm->size);
	for (int peer = 0; peer < comm->size; peer++)
		if (peer != comm->rank)
			TRY(find_route(comm, members, peer));
	for (int i = 0; i < CONTROL_LINKS; i++)
		find_neighbour(comm, members, i);
	return TUTTI_OK;
}

/* ---- starting -------------------------------------------------------------------------------- */

struct window_config comm_window_config(const struct tutti_comm *comm)
{
	return (struct window_config){.rank = comm->rank,
				      .size = comm->size,
				      .comm_id = {comm->id[0], comm->id[1]},
				      .window_bytes = (size_t)comm->env.window_bytes,
				      .policy = wait_policy_for(comm->crowd),
				      /* A part of the ranks does not see where the others are. */
				      .spreads = comm->env.spread && comm->size >= comm->crowd};
}

/* Only where there is no window: it does what the control ring is for. */
static tutti_status open_ring(struct tutti_comm *comm, struct control **control)
{
	struct control_config config = {.rank = comm->rank,
					.size = comm->size,
					.endpoint = comm->control_endpoint,
					.recorder = comm->recorder};

	comm->control_endpoint = NULL;
	if (config.endpoint && comm->window) {
		config.endpoint->transport->destroy(config.endpoint);
		return TUTTI_OK;
	}
	if (comm->size == 1)
		return TUTTI_OK;
	for (int i = 0; i < CONTROL_LINKS; i++) {
		const struct route *r = &comm->neighbours[i];
		if (!r->endpoint)
			continue;
		config.neighbours[i].address = r->address;
		config.neighbours[i].address_bytes = r->address_bytes;
	}
	return control_create(control, &config);
}

static tutti_status start_engine(struct tutti_comm *comm, const struct engine_config *config)
{
	tutti_status status = engine_create(&comm->engine, config);
	if (status != TUTTI_OK)
		control_destroy(config->control);
	else if (config->control)
		status = engine_open_control(comm->engine);
	return status;
}

/* All neighbours have started, or one has failed to and may never connect: that need not take long.
 */
tutti_status comm_connect(struct tutti_comm *comm, uint64_t deadline_ns)
{
	uint64_t soon = deadline_after_ms(CONNECT_MS);
	return engine_wait_control(comm->engine, soon < deadline_ns ? soon : deadline_ns);
}

tutti_status comm_start(struct tutti_comm *comm)
{
	struct engine_config config = {.rank = comm->rank,
				       .size = comm->size,
				       .endpoints = comm->endpoints,
				       .endpoint_count = comm->endpoint_count,
				       .routes = comm->routes,
				       .window = comm->window,
				       .slice_bytes = (size_t)comm->env.slice_bytes,
				       .scratch_bytes = (size_t)comm->env.scratch_bytes,
				       .policy = wait_policy_for(comm->crowd),
				       .helper_policy = wait_policy_for(2 * comm->crowd)};
	comm->own_recorder = comm->window ? NULL : recorder_new();
	comm->recorder = comm->window ? window_recorder(comm->window) : comm->own_recorder;
	if (!comm->recorder)
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory for a flight recorder",
			    comm->rank);
	TRY(open_ring(comm, &config.control));
	TRY(start_engine(comm, &config));
	free(comm->routes);
	comm->routes = NULL;
	comm->select.size = comm->size;
	comm->select.has_window = comm->window != NULL;
	comm->select.deterministic = comm->deterministic;
	comm->select.slice_bytes = (size_t)comm->env.slice_bytes;
	comm->select.scratch_bytes = (size_t)comm->env.scratch_bytes;
	struct links links =
		comm->select.links; /* a parent's; else the defaults until they are measured */
	if (links.gamma == 0)
		links = links_default();
	select_prepare(&comm->select, &links);
	log_info("rank %d of %d, node %d of %d, window %s", comm->rank, comm->size, comm->node_rank,
		 comm->num_nodes, comm->window ? "on" : "off");
	return TUTTI_OK;
}

void comm_free(struct tutti_comm *comm)
{
	if (!comm)
		return;
	if (comm->engine) {
		engine_destroy(comm->engine);
	} else {
		window_destroy(comm->window);
		for (int i = 0; i < comm->endpoint_count; i++)
			comm->endpoints[i]->transport->destroy(comm->endpoints[i]);
	}
	for (int i = 0; i < COMM_ALGORITHMS_MAX; i++)
		while (comm->plans[i]) {
			struct cached_plan *c = comm->plans[i];
			comm->plans[i] = c->next;
			plan_free(c->plan);
			free(c);
		}
	if (comm->control_endpoint)
		comm->control_endpoint->transport->destroy(comm->control_endpoint);
	recorder_free(comm->own_recorder);
	for (int side = 0; side < 2; side++)
		free(comm->packed[side]);
	free(comm->routes);
	free(comm->parent_ranks);
	free_texts(comm);
	free(comm);
}
