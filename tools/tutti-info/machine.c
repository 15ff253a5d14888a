/* Looks at this machine: opens each transport as a communicator would. */
#include "machine.h"

#include "collectives/comm/join.h"
#ifdef TUTTI_UCX
#include "transport/ucx/library.h"
#endif
#ifdef TUTTI_VERBS
#include "transport/verbs/device.h"
#endif

#include <dlfcn.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

static bool machine_has_verbs(void)
{
#ifdef TUTTI_VERBS
	const struct verbs_library *library;
	return verbs_library(&library) == TUTTI_OK;
#else
	return false;
#endif
}

/* As the transport loads it: UCX would take over signals of this process. */
static bool machine_has_ucx(void)
{
#ifdef TUTTI_UCX
	const struct ucx_library *library;
	return ucx_library(&library) == TUTTI_OK;
#else
	return false;
#endif
}

/* It stays: a library that was unloaded leaves memory that looks lost. */
static bool machine_has_openssl(void)
{
	return dlopen("libssl.so.3", RTLD_LAZY | RTLD_LOCAL) != NULL;
}

/* Libraries and files of Debian's packages. A library of a transport is loaded only if that may be
 * used, since TUTTI_TRANSPORTS may leave out one that does harm. */
static const struct {
	const char *name, *transport, *serves, *package; /* transport: or NULL */
	bool (*is_here)(void);                           /* NULL: name is a file */
} wanted[] = {
	{"libibverbs.so.1", "verbs", "verbs", "libibverbs1", machine_has_verbs},
	{"/etc/libibverbs.d", "verbs", "verbs: the drivers of devices", "ibverbs-providers", NULL},
	{"/etc/rdma/modules", "verbs", "verbs: the kernel's modules at boot", "rdma-core", NULL},
	{"/usr/bin/ibv_devinfo", "verbs", "looking at RDMA devices", "ibverbs-utils", NULL},
	{"libucp.so.0", "ucx", "ucx", "libucx0", machine_has_ucx},
	{"libssl.so.3", NULL, "TUTTI_TLS=1", "libssl3", machine_has_openssl},
};

static bool machine_is_listed(const struct tutti_transport *const *list, int count,
			      const char *name)
{
	for (int i = 0; i < count; i++)
		if (strcmp(list[i]->name, name) == 0)
			return true;
	return false;
}

/* "verbs: no port" says the name of its row a second time. */
static const char *machine_reason_of(const char *name)
{
	const char *reason = last_error();
	size_t n = strlen(name);

	if (strncmp(reason, name, n) == 0 && strncmp(reason + n, ": ", 2) == 0)
		reason += n + 2;
	return reason[0] ? reason : "it gives no reason";
}

static void machine_open_transport(struct transport_row *row,
				   const struct tutti_transport *transport,
				   const struct tutti_endpoint_config *config)
{
	last_error_forget();
	if (transport->open(&row->endpoint, config) != TUTTI_OK)
		row->endpoint = NULL;
	if (row->endpoint && row->endpoint->address_bytes > 0)
		return;
	row->state = TRANSPORT_ABSENT;
	snprintf(row->why, sizeof row->why, "%s", machine_reason_of(row->name));
}

static void machine_look_at_transports(struct machine *m, const struct tutti_comm *comm)
{
	struct tutti_endpoint_config config = comm_endpoint_config(comm);
	const struct env *env = &comm->settings.env;
	const struct tutti_transport *all[TRANSPORTS_MAX], *allowed[TRANSPORTS_MAX];
	int count = 0, allowed_count = 0;

	/* With ids of their own, beside the endpoints of comm; and as in a job, if this is none. */
	config.comm_id[0] = ~config.comm_id[0];
	config.comm_id[1] = ~config.comm_id[1];
	config.size = comm->size > 1 ? comm->size : 2;
	/* The communicator has made the same lists, so they can be made. */
	transport_list(all, &count, NULL, env);
	transport_list(allowed, &allowed_count, m->filter, env);
	for (int i = 0; i < count; i++) {
		struct transport_row *row = &m->transports[m->transport_count++];
		row->name = all[i]->name;
		if (machine_is_listed(allowed, allowed_count, row->name)) {
			machine_open_transport(row, all[i], &config);
			continue;
		}
		row->state = TRANSPORT_FORBIDDEN;
		snprintf(row->why, sizeof row->why, "TUTTI_TRANSPORTS=%s leaves it out", m->filter);
	}
}

/* NULL: this build does not have it. */
static const struct transport_row *machine_row_of(const struct machine *m, const char *name)
{
	for (int i = 0; i < m->transport_count; i++)
		if (strcmp(m->transports[i].name, name) == 0)
			return &m->transports[i];
	return NULL;
}

static void machine_look_for_missing(struct machine *m)
{
	if (!machine_row_of(m, "verbs"))
		m->missing[m->missing_count++] = (struct missing_row){
			"verbs", "this build: infiniband/verbs.h", "libibverbs-dev"};
	if (!machine_row_of(m, "ucx"))
		m->missing[m->missing_count++] =
			(struct missing_row){"ucx", "this build: ucp/api/ucp.h", "libucx-dev"};
	for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
		const char *transport = wanted[i].transport;
		const struct transport_row *row = transport ? machine_row_of(m, transport) : NULL;
		if (transport && (!row || row->state == TRANSPORT_FORBIDDEN))
			continue;
		bool is_here =
			wanted[i].is_here ? wanted[i].is_here() : access(wanted[i].name, F_OK) == 0;
		if (!is_here)
			m->missing[m->missing_count++] = (struct missing_row){
				wanted[i].name, wanted[i].serves, wanted[i].package};
	}
}

void machine_look(struct machine *m, const struct tutti_comm *comm)
{
	struct statvfs shm;

	*m = (struct machine){.filter = comm->settings.filter,
			      .uses_dma_buf = comm->settings.env.dma_buf};
	if (gethostname(m->host, sizeof m->host - 1) != 0)
		snprintf(m->host, sizeof m->host, "?");
	machine_look_at_transports(m, comm);
	machine_look_for_missing(m);
#ifdef TUTTI_VERBS
	struct tutti_endpoint_config config = comm_endpoint_config(comm);
	/* Where it fails the transport says why. */
	verbs_listing_make(&m->rdma, config.gid - 1, config.devices);
#endif
	gpus_look(&m->gpus, comm->settings.env.cuda);
	if (statvfs("/dev/shm", &shm) == 0) {
		m->shm_bytes = (uint64_t)shm.f_blocks * shm.f_frsize;
		m->shm_free_bytes = (uint64_t)shm.f_bavail * shm.f_frsize;
	}
}

void machine_close(struct machine *m)
{
	for (int i = 0; i < m->transport_count; i++)
		if (m->transports[i].endpoint)
			m->transports[i].endpoint->transport->destroy(m->transports[i].endpoint);
#ifdef TUTTI_VERBS
	verbs_listing_free(&m->rdma);
#endif
	gpus_free(&m->gpus);
}

bool machine_works(const struct machine *m)
{
	for (int i = 0; i < m->transport_count; i++)
		if (m->transports[i].state == TRANSPORT_POSSIBLE)
			return true;
	return false;
}

/* Why no adapter reaches the GPU's memory; NULL: those may that can. */
static const char *machine_no_dma_buf(const struct machine *m, int gpu)
{
	if (!m->uses_dma_buf)
		return "TUTTI_DMA_BUF is 0";
	return m->gpus.rows[gpu].no_dma_buf[0] ? m->gpus.rows[gpu].no_dma_buf : NULL;
}

/* The devices of the ports that can, or cannot: "mlx5_0, mlx5_1". Returns how many. */
static int machine_list_adapters(const struct machine *m, bool can, char *text, size_t bytes)
{
	const char *before = "";
	size_t used = 0;
	int count = 0;

	text[0] = '\0';
	for (int i = 0; i < m->rdma.count && used < bytes; i++) {
		const struct verbs_listed_port *port = &m->rdma.ports[i];
		if (port->has_maps != can || port->number == 0 || strcmp(port->device, before) == 0)
			continue;
		before = port->device;
		used += (size_t)snprintf(text + used, bytes - used, "%s%s", count++ ? ", " : "",
					 port->device);
	}
	return count;
}

void machine_adapters(const struct machine *m, int gpu, char text[MACHINE_ADAPTERS_BYTES])
{
	const char *why = machine_no_dma_buf(m, gpu);
	char can[220], cannot[220];

	if (why) {
		snprintf(text, MACHINE_ADAPTERS_BYTES, "none: %s", why);
		return;
	}
	bool has_some = machine_list_adapters(m, true, can, sizeof can) > 0;
	bool lacks_some = machine_list_adapters(m, false, cannot, sizeof cannot) > 0;
	snprintf(text, MACHINE_ADAPTERS_BYTES, "%s%s%s%s",
		 has_some     ? can
		 : lacks_some ? "none"
			      : "none: there is no adapter",
		 lacks_some ? "; not " : "", cannot,
		 lacks_some ? ", whose driver registers no dma-buf: with it in use "
			      "(TUTTI_VERBS_DEVICES) none does"
			    : "");
}

const char *transport_state_name(enum transport_state state)
{
	return state == TRANSPORT_POSSIBLE ? "possible"
	       : state == TRANSPORT_ABSENT ? "not here"
					   : "forbidden";
}
