/* Which options of tuttirun go together. */
#include "help.h"
#include "options.h"

#include "core/words/device_list.h"

#include <stdlib.h>
#include <string.h>

int options_have_secret(void)
{
	return getenv("TUTTI_SECRET") || getenv("TUTTI_SECRET_FILE");
}

/* Or the user's word that the job does without. */
static int may_join(void)
{
	const char *insecure = getenv("TUTTI_INSECURE");

	return options_have_secret() || (insecure && strcmp(insecure, "1") == 0);
}

bool options_start_hosts(const struct options *o)
{
	return !o->is_agent && (o->hosts || o->hostfile);
}

/* Ranks that take each other in by tutti_comm_grow are each machine's own. */
bool options_restart_hosts(const struct options *o)
{
	return options_start_hosts(o) && o->max_restarts > 0 && o->restart != RESTART_RANK;
}

static int check_hosts(const struct options *o)
{
	if (o->hosts && o->hostfile)
		return help_wrong("--hosts and --hostfile are both given; leave one away.");
	if (o->ssh && !options_start_hosts(o) && !o->is_agent)
		return help_wrong("--ssh needs --hosts or --hostfile.");
	return -1;
}

static int options_check_nodes(const struct options *o)
{
	if (o->nodes == 1 && o->node_rank > 0)
		return help_wrong("--node-rank %d needs --nnodes.", o->node_rank);
	if (o->node_rank >= o->nodes)
		return help_wrong("--node-rank %d is not below --nnodes %d.", o->node_rank,
				  o->nodes);
	if (o->nodes > 1 && !o->master_host)
		return help_wrong("--nnodes %d needs --master HOST:PORT of node 0.", o->nodes);
	if (o->nodes > 1 && !options_start_hosts(o) && !o->explain && !may_join())
		return help_wrong("several nodes need the same secret: set TUTTI_SECRET or "
				  "TUTTI_SECRET_FILE on each of them.");
	return -1;
}

/* Where -n is no number. Each machine has as many GPUs as this one, as far as this one knows. */
static int options_check_count_ranks(struct options *o)
{
	int gpus = o->devices[0] ? device_list_count(o->devices) : 0;

	if (o->ranks > 0)
		return -1;
	if (o->automatic && gpus == 0)
		gpus = automatic_gpus();
	if (o->automatic && strcmp(o->automatic, "gpu") == 0 && gpus == 0)
		return help_wrong("-n gpu: there is no GPU here; name a number of ranks.");
	o->ranks = gpus;
	if (o->automatic && (gpus == 0 || strcmp(o->automatic, "cpu") == 0))
		o->ranks = automatic_cpus();
	if (o->ranks > RANKS_MAX)
		o->ranks = RANKS_MAX;
	/* A file of hosts may say it; that is read later. */
	if (o->ranks == 0 && !(options_start_hosts(o) && o->hostfile && o->nodes == 1))
		return help_wrong("-n is missing: how many ranks shall run?");
	return -1;
}

int options_size(const struct options *o)
{
	return o->nodes * o->ranks * (o->local_ranks ? o->local_ranks : 1);
}

static int options_check_size(const struct options *o)
{
	int64_t processes = (int64_t)o->nodes * o->ranks;

	if (processes <= WORLD_MAX &&
	    processes * (o->local_ranks ? o->local_ranks : 1) <= WORLD_MAX)
		return -1;
	return help_wrong("-n %d, --nnodes %d and --local-ranks %d are too many: a job has %d "
			  "ranks at most.",
			  o->ranks, o->nodes, o->local_ranks ? o->local_ranks : 1, WORLD_MAX);
}

static int check_mesh(struct options *o)
{
	char why[AXES_WHY_BYTES];

	if (!o->mesh || (options_start_hosts(o) && o->nodes == 1) ||
	    (axes_read(&o->axes, o->mesh, why) && axes_fit(&o->axes, options_size(o), why)))
		return -1;
	return help_wrong("--mesh: %s.", why);
}

int options_check(struct options *o)
{
	int code = options_check_count_ranks(o);

	if (code < 0 && !*o->program && !o->explain)
		code = help_wrong("the program is missing.");
	if (code < 0)
		code = check_hosts(o);
	if (code < 0)
		code = options_check_nodes(o);
	if (code < 0)
		code = options_check_size(o);
	return code < 0 ? check_mesh(o) : code;
}
