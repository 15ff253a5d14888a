/* Machines and ways as JSON. */
#include "json.h"

#include "tools/must.h"

#include <jansson.h>
#include <string.h>

const bool json_is_here = true;

/* Texts of the environment and names of files need not be UTF-8. */
static json_t *json_text(const char *text)
{
	json_t *value = text ? json_string(text) : json_null();

	return value ? value : must_have(json_string("(not UTF-8)"));
}

static json_t *json_gids_of(const struct verbs_listed_port *port)
{
	json_t *list = json_array();

	for (int i = 0; i < port->gid_count; i++) {
		const struct verbs_listed_gid *gid = &port->gids[i];
		json_array_append_new(list, json_pack("{s:i, s:s, s:s, s:o, s:b, s:s}", "index",
						      gid->index, "type", gid->type, "address",
						      gid->address, "interface",
						      json_text(gid->interface), "chosen",
						      gid->is_chosen, "why", gid->why));
	}
	return list;
}

static json_t *json_ports_of(const struct machine *m)
{
	json_t *list = json_array();

	for (int i = 0; i < m->rdma.count; i++) {
		const struct verbs_listed_port *port = &m->rdma.ports[i];
		json_array_append_new(
			list, json_pack("{s:o, s:i, s:s, s:s, s:f, s:i, s:i, s:b, s:b, s:o, s:o}",
					"device", json_text(port->device), "port", port->number,
					"state", port->state, "link", port->link, "gigabits",
					port->gigabits, "mtu", port->mtu, "lid", port->lid, "used",
					port->is_used, "dma_buf", port->has_maps, "lacks",
					json_text(port->lacks), "gids", json_gids_of(port)));
	}
	return list;
}

static json_t *json_transports_of(const struct machine *m)
{
	json_t *list = json_array();

	for (int i = 0; i < m->transport_count; i++) {
		const struct transport_row *row = &m->transports[i];
		json_array_append_new(list,
				      json_pack("{s:o, s:s, s:o}", "name", json_text(row->name),
						"state", transport_state_name(row->state), "why",
						json_text(row->why)));
	}
	return list;
}

static json_t *json_missing_of(const struct machine *m)
{
	json_t *list = json_array();

	for (int i = 0; i < m->missing_count; i++)
		json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "name", m->missing[i].name,
						      "serves", m->missing[i].serves, "package",
						      m->missing[i].package));
	return list;
}

static json_t *json_gpu_rows_of(const struct machine *m)
{
	const struct gpus *g = &m->gpus;
	json_t *list = json_array();

	for (int i = 0; i < g->count; i++) {
		const struct gpu_row *row = &g->rows[i];
		char adapters[MACHINE_ADAPTERS_BYTES];
		machine_adapters(m, i, adapters);
		json_array_append_new(
			list,
			json_pack("{s:o, s:s, s:s, s:I, s:[i, i], s:i, s:i, s:b, s:b, s:b, s:b, "
				  "s:s, s:o}",
				  "name", json_text(row->name), "uuid", row->uuid, "pci", row->pci,
				  "bytes", (json_int_t)row->bytes, "compute_capability", row->major,
				  row->minor, "multiprocessors", row->multiprocessors, "numa_node",
				  row->numa_node, "dma_buf", !row->no_dma_buf[0],
				  "posix_descriptors", row->has_descriptors, "fabric_handles",
				  row->has_fabric, "multicast", row->has_multicast, "to_host",
				  row->uses_host_pages ? "C2C" : "PCIe", "adapters",
				  json_text(adapters)));
	}
	return list;
}

static json_t *json_gpu_links_of(const struct gpus *g)
{
	json_t *list = json_array();

	for (int i = 0; i < g->count * g->count; i++) {
		const struct gpu_link *link = &g->links[i];
		if (i / g->count == i % g->count)
			continue;
		json_array_append_new(list,
				      json_pack("{s:i, s:i, s:b, s:i, s:b}", "from", i / g->count,
						"to", i % g->count, "can_map", link->can_map,
						"performance_rank", link->performance_rank,
						"native_atomics", link->has_atomics));
	}
	return list;
}

static json_t *json_gpus_of(const struct machine *m)
{
	const struct gpus *g = &m->gpus;

	return json_pack("{s:o, s:i, s:b, s:o, s:o}", "missing",
			 json_text(g->missing[0] ? g->missing : NULL), "driver_version",
			 g->driver_version, "kernels", g->has_kernels, "list", json_gpu_rows_of(m),
			 "links", json_gpu_links_of(g));
}

char *json_machine(const struct machine *m, const char *ranks)
{
	const struct verbs_listing *rdma = &m->rdma;
	bool has_limit = rdma->lock_advice || (rdma->lock_bytes && rdma->lock_bytes != UINT64_MAX);
	json_t *host = json_pack(
		"{s:o, s:o, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I}", "host",
		json_text(m->host), "ranks", json_text(ranks), "works", machine_works(m),
		"tutti_transports", json_text(m->filter), "transports", json_transports_of(m),
		"rdma_ports", json_ports_of(m), "gpus", json_gpus_of(m), "missing",
		json_missing_of(m), "lock_bytes",
		has_limit ? json_integer((json_int_t)rdma->lock_bytes) : json_null(), "lock_advice",
		json_text(rdma->lock_advice), "shm_bytes", (json_int_t)m->shm_bytes,
		"shm_free_bytes", (json_int_t)m->shm_free_bytes);
	char *written = must_have(json_dumps(must_have(host), 0));

	json_decref(host);
	return written;
}

static json_t *json_candidates_of(const struct pairs *p, int a, int b)
{
	json_t *list = json_array();

	for (int i = 0; i < p->ranks[a].offer_count; i++) {
		const char *name = p->ranks[a].offers[i].name;
		char why[PAIRS_WHY_BYTES];
		int reach = pairs_explain(p, a, b, i, why);
		json_array_append_new(list, json_pack("{s:o, s:i, s:b, s:o}", "name",
						      json_text(name), "reach", reach, "chosen",
						      strcmp(name, pairs_way(p, a, b)) == 0, "why",
						      json_text(why)));
	}
	return list;
}

static json_t *json_kinds_of(const struct pairs *p)
{
	json_t *list = json_array();

	for (size_t k = 0; k < p->kind_count; k++) {
		const struct pair_kind *kind = &p->kinds[k];
		int a = kind->pairs[0][0], b = kind->pairs[0][1];
		json_t *ranks = json_array();
		for (size_t i = 0; i < kind->count; i++)
			json_array_append_new(
				ranks, json_pack("[i, i]", kind->pairs[i][0], kind->pairs[i][1]));
		json_array_append_new(
			list, json_pack("{s:o, s:o, s:s, s:s, s:s, s:o, s:o}", "ranks", ranks,
					"messages", json_text(pairs_way(p, a, b)), "device_buffers",
					gpus_path(pairs_relation(p, a, b)), "gpus",
					gpus_relation_text(pairs_relation(p, a, b)),
					"long_messages", pairs_long_way(p, a, b), "collectives",
					json_text(p->no_window ? pairs_way(p, a, b) : "window"),
					"transports", json_candidates_of(p, a, b)));
	}
	return list;
}

/* Of each machine; in a communicator of all ranks. */
static json_t *json_gpu_parts_of(const struct pairs *p)
{
	json_t *list = json_array();

	for (int r = 0; p->has_gpus && r < p->size; r++) {
		const char *why = p->parts[r].no_multicast;
		if (p->ranks[r].is_first)
			json_array_append_new(list, json_pack("{s:o, s:s, s:o}", "host",
							      json_text(p->ranks[r].host), "by",
							      pairs_gpu_way_text(&p->parts[r]),
							      "no_multicast",
							      json_text(why[0] ? why : NULL)));
	}
	return list;
}

void json_print(FILE *file, char *const *hosts, int count, const struct pairs *p)
{
	json_t *list = json_array();

	for (int i = 0; i < count; i++)
		json_array_append_new(list, json_loads(hosts[i], 0, NULL));
	json_t *all =
		must_have(json_pack("{s:s, s:s, s:i, s:o}", "tutti", TUTTI_VERSION, "revision",
				    tutti_revision(), "size", p ? p->size : 1, "hosts", list));
	if (p) {
		json_object_set_new(all, "no_window", json_text(p->no_window));
		json_object_set_new(all, "device_buffers", json_gpu_parts_of(p));
		json_object_set_new(all, "pairs", json_kinds_of(p));
	}
	json_dumpf(all, file, JSON_INDENT(2));
	fputc('\n', file);
	json_decref(all);
}
