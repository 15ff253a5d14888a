/* The grid of a job's ranks. */
#include "mesh.h"

#include "train/mesh/axes.h"
#include "tools/must.h"
#include "tools/output.h"

static int tutti_info_mesh_show(tutti_comm *comm, const struct axes *axes, int *nodes)
{
	int own = tutti_node_rank(comm);

	if (tutti_all_gather(&own, nodes, 1, TUTTI_I32, comm, NULL) != TUTTI_OK) {
		fprintf(stderr, "tutti-info: %s\n", tutti_comm_error(comm));
		return 1;
	}
	if (tutti_rank(comm) == 0)
		grid_print(stdout, axes, nodes);
	return 0;
}

/* Ranks have the same command line, so all refuse it, and rank 0 says so. */
int mesh_show(tutti_comm *comm, const char *text)
{
	char why[AXES_WHY_BYTES];
	struct axes axes;

	if (!axes_read(&axes, text, why) || !axes_fit(&axes, tutti_size(comm), why))
		return tutti_rank(comm) == 0 ? usage_error("--mesh: %s.", why) : 2;
	int *nodes = must_alloc((size_t)tutti_size(comm), sizeof *nodes);
	int code = tutti_info_mesh_show(comm, &axes, nodes);
	free(nodes);
	return code;
}
