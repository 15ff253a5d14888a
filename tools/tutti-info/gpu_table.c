/* GPUs and their links as text. */
#include "machine.h"

static void print_gpu(FILE *f, int number, const struct gpu_row *row)
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

static void print_link(FILE *f, const struct gpus *g, int a, int b)
{
	const struct gpu_link *to = gpus_link(g, a, b), *back = gpus_link(g, b, a);

	fprintf(f, "  %d-%d: %s; %s; performance rank %d, native atomics %s\n", a, b, to->way,
		to->can_map && back->can_map ? "each can map the other's memory"
		: to->can_map                ? "the first can map the second's memory only"
		: back->can_map              ? "the second can map the first's memory only"
					     : "neither can map the other's memory",
		to->performance_rank, to->has_atomics && back->has_atomics ? "yes" : "no");
}

void gpus_print(FILE *f, const struct gpus *g)
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
		print_gpu(f, i, &g->rows[i]);
	if (g->count > 1)
		fputs("Between GPUs:\n", f);
	for (int a = 0; a < g->count; a++)
		for (int b = a + 1; b < g->count; b++)
			print_link(f, g, a, b);
}
