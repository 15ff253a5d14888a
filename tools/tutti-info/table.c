/* Tables: of a machine, and of the ways between the ranks of a job. */
#include "machine.h"
#include "pairs.h"

#include <string.h>

#define MATRIX_RANKS 32 /* of more ranks there is no matrix */
#define PAIRS_SHOWN  8  /* of those that are connected alike */

static void table_gids(FILE *f, const struct verbs_listed_port *port)
{
	for (int i = 0; i < port->gid_count; i++) {
		const struct verbs_listed_gid *gid = &port->gids[i];
		fprintf(f, "      GID %-3d %-10s %-15s %s%s%s\n", gid->index, gid->type,
			gid->interface[0] ? gid->interface : "?", gid->address,
			gid->is_chosen ? "  chosen: " : "", gid->why);
	}
}

static void table_port(FILE *f, const struct verbs_listed_port *port)
{
	if (port->number == 0) {
		fprintf(f, "  %s: %s\n", port->device, port->lacks);
		return;
	}
	fprintf(f, "  %s, port %d: %s, %s, ", port->device, port->number, port->state, port->link);
	if (port->gigabits > 0)
		fprintf(f, "%g Gb/s, ", port->gigabits);
	fprintf(f, "MTU %d, LID %d; %s%s\n", port->mtu, port->lid,
		port->is_used    ? "used"
		: port->lacks[0] ? "not used: "
				 : "not used: four others are as fast or faster",
		port->lacks);
	table_gids(f, port);
}

static void table_gpu(FILE *f, int number, const struct gpu_row *row)
{
	fprintf(f, "  %d: %s, %s, PCI %s, %zu MiB, compute capability %d.%d, %d multiprocessors\n",
		number, row->name, row->uuid, row->pci, row->bytes >> 20, row->major, row->minor,
		row->multiprocessors);
	fprintf(f, "      dma-buf %s, POSIX descriptors %s, fabric handles %s, multicast %s; ",
		row->no_dma_buf[0] ? "no" : "yes", row->has_descriptors ? "yes" : "no",
		row->has_fabric ? "yes" : "no", row->has_multicast ? "yes" : "no");
	fprintf(f, "to the host by %s", row->uses_host_pages ? "C2C" : "PCIe");
	if (row->numa_node >= 0)
		fprintf(f, ", NUMA node %d", row->numa_node);
	fputc('\n', f);
}

static void table_link(FILE *f, const struct gpus *g, int a, int b)
{
	const struct gpu_link *to = gpus_link(g, a, b), *back = gpus_link(g, b, a);

	fprintf(f, "  %d-%d: %s; performance rank %d, native atomics %s\n", a, b,
		to->can_map && back->can_map ? "each can map the other's memory"
		: to->can_map                ? "the first can map the second's memory only"
		: back->can_map              ? "the second can map the first's memory only"
					     : "neither can map the other's memory",
		to->performance_rank, to->has_atomics && back->has_atomics ? "yes" : "no");
}

static void table_gpus(FILE *f, const struct gpus *g)
{
	const char *kernels = g->has_kernels ? "this build has kernels"
					     : "this build has no kernels: there was no nvcc";

	if (g->missing[0]) {
		fprintf(f, "GPUs: none: %s; %s\n", g->missing, kernels);
		return;
	}
	fprintf(f, "GPUs: CUDA driver %d.%d; %s\n", g->driver_version / 1000,
		g->driver_version % 1000 / 10, kernels);
	for (int i = 0; i < g->count; i++)
		table_gpu(f, i, &g->rows[i]);
	if (g->count > 1)
		fputs("Between GPUs:\n", f);
	for (int a = 0; a < g->count; a++)
		for (int b = a + 1; b < g->count; b++)
			table_link(f, g, a, b);
}

static void table_adapters(FILE *f, const struct machine *m)
{
	char text[MACHINE_ADAPTERS_BYTES];

	if (m->gpus.count > 0)
		fputs("Adapters that reach a GPU's memory (dma-buf):\n", f);
	for (int i = 0; i < m->gpus.count; i++) {
		machine_adapters(m, i, text);
		fprintf(f, "  GPU %d: %s\n", i, text);
	}
}

static void table_limits(FILE *f, const struct machine *m)
{
	const struct verbs_listing *rdma = &m->rdma;

	if (rdma->lock_bytes == UINT64_MAX)
		fputs("Memory that a process may lock: no limit\n", f);
	else if (rdma->lock_bytes > 0 || rdma->lock_advice)
		fprintf(f, "Memory that a process may lock: %llu KiB%s%s\n",
			(unsigned long long)rdma->lock_bytes >> 10,
			rdma->lock_advice ? "; for verbs " : "",
			rdma->lock_advice ? rdma->lock_advice : "");
	fprintf(f,
		"/dev/shm: %llu MiB, %llu MiB of it free (for ucx; Tutti's own shared memory is "
		"not in it)\n",
		(unsigned long long)m->shm_bytes >> 20,
		(unsigned long long)m->shm_free_bytes >> 20);
}

void machine_print(FILE *f, const struct machine *m, const char *ranks)
{
	if (ranks)
		fprintf(f, "Host %s, %s %s\n", m->host, strchr(ranks, ',') ? "ranks" : "rank",
			ranks);
	else
		fprintf(f, "Host %s\n", m->host);
	for (int i = 0; i < m->transport_count; i++) {
		const struct transport_row *row = &m->transports[i];
		fprintf(f, "  %-10s %s%s%s\n", row->name, transport_state_name(row->state),
			row->why[0] ? ": " : "", row->why);
	}
	fprintf(f, "RDMA ports:%s\n", m->rdma.count ? "" : " none");
	for (int i = 0; i < m->rdma.count; i++)
		table_port(f, &m->rdma.ports[i]);
	table_gpus(f, &m->gpus);
	table_adapters(f, m);
	table_limits(f, m);
	fprintf(f, "Missing:%s\n", m->missing_count ? "" : " nothing");
	for (int i = 0; i < m->missing_count; i++)
		fprintf(f, "  %s (%s); Debian: %s\n", m->missing[i].name, m->missing[i].serves,
			m->missing[i].package);
}

static void table_matrix(FILE *f, const struct pairs *p)
{
	fprintf(f, "  %4s", "");
	for (int b = 0; b < p->size; b++)
		fprintf(f, " %-6d", b);
	for (int a = 0; a < p->size; a++) {
		fprintf(f, "\n  %4d", a);
		for (int b = 0; b < p->size; b++)
			fprintf(f, " %-6s", a == b ? "." : pairs_way(p, a, b));
	}
	fputc('\n', f);
}

static void table_kind(FILE *f, const struct pairs *p, const struct pair_kind *kind)
{
	int a = kind->pairs[0][0], b = kind->pairs[0][1];

	fputs("Ranks ", f);
	for (size_t i = 0; i < kind->count && i < PAIRS_SHOWN; i++)
		fprintf(f, "%s%d-%d", i ? ", " : "", kind->pairs[i][0], kind->pairs[i][1]);
	if (kind->count > PAIRS_SHOWN)
		fprintf(f, " and %zu more", kind->count - PAIRS_SHOWN);
	fprintf(f, ": messages by %s, collectives by %s\n", pairs_way(p, a, b),
		p->no_window ? pairs_way(p, a, b) : "window");
	if (pairs_relation(p, a, b) != GPUS_NONE) {
		fprintf(f, "  device buffers by %s: %s\n", gpus_path(pairs_relation(p, a, b)),
			gpus_relation_text(pairs_relation(p, a, b)));
		fprintf(f, "  long messages of device buffers %s\n", pairs_long_text(p, a, b));
	}
	for (int i = 0; i < p->ranks[a].offer_count; i++) {
		char why[PAIRS_WHY_BYTES];
		int reach = pairs_explain(p, a, b, i, why);
		fprintf(f, "  %-10s %6d  %s\n", p->ranks[a].offers[i].name, reach, why);
	}
}

/* Of each machine, whose ranks are alike in this. */
static void table_gpu_parts(FILE *f, const struct pairs *p)
{
	fputs("Device buffers of a communicator of all ranks:\n", f);
	for (int r = 0; r < p->size; r++) {
		const struct gpu_part *part = &p->parts[r];
		if (p->ranks[r].is_first)
			fprintf(f, "  on %s by %s; multicast (NVLS): %s%s\n", p->ranks[r].host,
				pairs_gpu_way_text(part),
				part->no_multicast[0] ? "no: " : "for buffers of tutti_mem_alloc",
				part->no_multicast);
	}
}

void pairs_print(FILE *f, const struct pairs *p)
{
	fprintf(f, "Messages between %d ranks go by\n", p->size);
	if (p->size <= MATRIX_RANKS)
		table_matrix(f, p);
	fprintf(f, "Window for collectives: %s%s\n", p->no_window ? "none: " : "yes",
		p->no_window ? p->no_window : ", all ranks share memory");
	if (p->has_gpus)
		table_gpu_parts(f, p);
	for (size_t k = 0; k < p->kind_count; k++)
		table_kind(f, p, &p->kinds[k]);
}
