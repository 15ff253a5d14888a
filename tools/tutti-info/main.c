/* tutti-info: which transports and RDMA ports there are, which of them a job's ranks use between
 * each other, and why. */
#include "json.h"

#include "core/program/line.h"
#include "core/program/output.h"
#include "tools/must.h"
#include "train/mesh/axes.h"

#include <string.h>

struct asked {
	bool is_json;
	const char *mesh;
};

static const struct line_option main_options[] = {
	{"json", 'j', NULL, offsetof(struct asked, is_json), .kind = LINE_BOOL,
	 .help = "the same as JSON"},
	{"mesh", 'm', "dp=2,tp=4", offsetof(struct asked, mesh), .kind = LINE_TEXT,
	 .help = "only the ranks as a grid with these axes, and which of these cross nodes"},
	{0},
};

static const char main_about[] =
	"Lists what this machine has: transports, RDMA ports with their GIDs, GPUs, which of\n"
	"them map each other and the adapters that reach their memory, limits, and what is\n"
	"missing, with the Debian package that brings it. In a job it is a rank: rank 0 lists\n"
	"all machines, which transport each pair of ranks uses, and why, and what moves their\n"
	"device buffers. Ranks take the GPUs of a machine in turn, and use them. The numbers\n"
	"are those by which transports are compared: the highest is taken, and 0 does not\n"
	"connect the two.";

static const char main_after[] =
	"Exit codes: 0 a job can run; 1 no transport works, or the ranks could not join, or\n"
	"stdout cannot be written; 2 the command line.";

static const struct line_table main_line = {
	.options = main_options,
	.unwritten = 1,
	.usage = "usage: tutti-info [--json]\n"
		 "       tuttirun -n N tutti-info [--json] [--mesh AXIS=SIZE,...]   or torchrun, "
		 "srun,\n"
		 "                                                                  mpirun",
	.about = main_about,
	.after = main_after,
};

static int main_failed(const char *why)
{
	fprintf(stderr, "%s: %s\n", program_invocation_short_name, why);
	return 1;
}

static void main_print(bool is_json, char *const *hosts, int count, const struct pairs *pairs)
{
	if (is_json) {
		json_print(stdout, hosts, count, pairs);
		return;
	}
	printf("Tutti %s (%s)\n", TUTTI_VERSION, tutti_revision());
	for (int i = 0; i < count; i++)
		printf("\n%s", hosts[i]);
	if (!pairs)
		return;
	putchar('\n');
	pairs_print(stdout, pairs);
}

static char *main_describe(bool is_json, const struct machine *m, const char *ranks)
{
	char *text = NULL;
	size_t bytes;

	if (is_json)
		return json_machine(m, ranks);
	FILE *file = must_have(open_memstream(&text, &bytes));
	machine_print(file, m, ranks);
	fclose(file);
	return must_have(text);
}

static int info_look_alone(bool is_json, tutti_comm *comm)
{
	struct machine m;

	machine_look(&m, comm);
	char *text = main_describe(is_json, &m, NULL);
	bool works = machine_works(&m);
	main_print(is_json, &text, 1, NULL);
	free(text);
	machine_close(&m);
	return works ? 0 : 1;
}

/* "0, 1, 5": the ranks of this rank's node, as far as there is room. */
static void main_list_ranks(char *text, size_t bytes, const struct pairs *p, int rank)
{
	size_t used = 0;

	text[0] = '\0';
	for (int r = 0; r < p->size && used + 16 < bytes; r++)
		if (p->ranks[r].node == p->ranks[rank].node)
			used += (size_t)snprintf(text + used, bytes - used, "%s%d",
						 used ? ", " : "", r);
}

/* The texts of the first ranks of all nodes, on rank 0, in one block that hosts points into. */
static tutti_status info_gather_texts(tutti_comm *comm, const char *text, char **hosts,
				      char **block)
{
	size_t n = (size_t)comm->size, total = 0, own = text ? strlen(text) + 1 : 0;
	size_t *counts = must_alloc(n, sizeof *counts), *offsets = must_alloc(n, sizeof *offsets);

	tutti_status status = tutti_all_gather(&own, counts, 1, TUTTI_U64, comm, NULL);
	for (size_t r = 0; status == TUTTI_OK && r < n; r++) {
		offsets[r] = total;
		total += counts[r];
	}
	*block = must_alloc(total, 1);
	if (status == TUTTI_OK)
		status = tutti_gatherv(text, *block, counts, offsets, TUTTI_U8, 0, comm, NULL);
	for (size_t r = 0; r < n; r++)
		if (counts[r])
			*hosts++ = *block + offsets[r];
	free(counts);
	free(offsets);
	return status;
}

static tutti_status info_look_together(bool is_json, tutti_comm *comm)
{
	char ranks[4096], *block = NULL, *text = NULL;
	char **hosts = must_alloc((size_t)comm->size, sizeof *hosts);
	struct machine m;
	struct pairs p;

	machine_look(&m, comm);
	tutti_status status = pairs_gather(&p, comm, &m);
	if (status == TUTTI_OK && p.ranks[comm->rank].is_first) {
		main_list_ranks(ranks, sizeof ranks, &p, comm->rank);
		text = main_describe(is_json, &m, ranks);
	}
	if (status == TUTTI_OK)
		status = info_gather_texts(comm, text, hosts, &block);
	if (status == TUTTI_OK && comm->rank == 0)
		main_print(is_json, hosts, comm->place.num_nodes, &p);
	free(hosts);
	free(block);
	free(text);
	machine_close(&m);
	pairs_free(&p);
	return status;
}

/* --mesh: the job's ranks as a grid. They have the same command line, so all refuse it, and rank 0
 * says so. */
static int main_mesh_show(tutti_comm *comm, const char *text)
{
	char why[AXES_WHY_BYTES];
	struct axes axes;
	int own = tutti_node_rank(comm);

	if (!axes_read(&axes, text, why) || !axes_fit(&axes, tutti_size(comm), why))
		return tutti_rank(comm) == 0 ? line_wrong("--mesh: %s.", why) : 2;
	int *nodes = must_alloc((size_t)tutti_size(comm), sizeof *nodes);
	tutti_status status = tutti_all_gather(&own, nodes, 1, TUTTI_I32, comm, NULL);
	if (status == TUTTI_OK && tutti_rank(comm) == 0)
		grid_print(stdout, &axes, nodes);
	free(nodes);
	return status == TUTTI_OK ? 0 : main_failed(tutti_comm_error(comm));
}

/* Without a launcher it is a world of its own. */
static int main_join(const struct asked *asked)
{
	tutti_comm *comm;
	int code = 0;

	if (tutti_init(&comm, NULL) != TUTTI_OK)
		return main_failed(tutti_comm_error(NULL));
	if (asked->mesh)
		code = main_mesh_show(comm, asked->mesh);
	else if (comm->size == 1)
		code = info_look_alone(asked->is_json, comm);
	else if (info_look_together(asked->is_json, comm) != TUTTI_OK)
		code = main_failed(tutti_comm_error(comm));
	tutti_comm_destroy(comm);
	return code;
}

int main(int argc, char **argv)
{
	struct asked asked = {false, NULL};

	if (!output_open())
		return 1;
	int code = line_parse(&main_line, &asked, argc, argv);
	if (code < 0 && asked.mesh && asked.is_json)
		code = line_wrong("--mesh prints no JSON.");
	if (code < 0 && asked.is_json && !json_is_here)
		code = main_failed("this build of Tutti writes no JSON: jansson was not installed "
				   "(Debian: libjansson-dev), or TUTTI_JSON was off");
	return output_end(code < 0 ? main_join(&asked) : code, 1);
}
