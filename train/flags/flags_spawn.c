/* The ranks that a trainer's flags ask for. */
#include "train/flags/flags.h"

#include "core/callback.h"
#include "core/words/device_list.h"
#include "core/words/number.h"

#include <stdlib.h>
#include <string.h>

enum { DEVICES_MAX = 4096 };

/* This node among those of --nodes. */
struct flag_node {
	int (*fn)(void *arg);
	void *arg;
	int devices, nodes, rank;
	int port;         /* 0: one of tutti_spawn's */
	const char *host; /* NULL: this machine      */
	bool has_secret;  /* the user's              */
};

static int flags_spawn_devices_of(const tutti_train_options *options)
{
	if (options->devices > 0)
		return options->devices;
	if (options->num_gpus > 0)
		return options->num_gpus;
	if (options->devices != TUTTI_AUTO)
		return 1;
	int gpus = automatic_gpus(), found = gpus > 0 ? gpus : automatic_cpus();
	return found < DEVICES_MAX ? found : DEVICES_MAX;
}

static void flags_spawn_set_number(const char *name, int number)
{
	char text[16];

	snprintf(text, sizeof text, "%d", number);
	setenv(name, text, 1);
}

/* In the new process. tutti_spawn has set the variables of a job on one node. */
static int flags_spawn_run_rank(int local_rank, void *arg)
{
	const struct flag_node *node = arg;

	if (node->port)
		flags_spawn_set_number("MASTER_PORT", node->port);
	if (node->nodes == 1)
		return node->fn(node->arg);
	flags_spawn_set_number("RANK", node->rank * node->devices + local_rank);
	flags_spawn_set_number("WORLD_SIZE", node->nodes * node->devices);
	flags_spawn_set_number("NODE_RANK", node->rank);
	flags_spawn_set_number("GROUP_RANK", node->rank);
	setenv("MASTER_ADDR", node->host, 1);
	if (!node->has_secret)
		unsetenv("TUTTI_SECRET"); /* each node's is another one */
	return node->fn(node->arg);
}

static tutti_status flags_spawn_read_variable(const struct flag_node *node, const char *name,
					      const char *what, int least, int most, int *value)
{
	const char *text = getenv(name);

	if (!text || !*text)
		return fail_invalid("--nodes %d without a launcher needs %s, %s: set it on each "
				    "node.",
				    node->nodes, name, what);
	if (!number_read_int(text, least, most, value))
		return fail_invalid("--nodes %d needs %s, %s: '%.60s' is no number from %d to %d.",
				    node->nodes, name, what, text, least, most);
	return TUTTI_OK;
}

/* The variables that Lightning reads, too, where no launcher has started it. */
static tutti_status flags_spawn_find_nodes(struct flag_node *node)
{
	const char *insecure = getenv("TUTTI_INSECURE");

	TRY(flags_spawn_read_variable(node, "NODE_RANK", "the number of this node", 0,
				      node->nodes - 1, &node->rank));
	node->host = getenv("MASTER_ADDR");
	if (!node->host || !*node->host)
		return fail_invalid("--nodes %d without a launcher needs MASTER_ADDR, an address "
				    "of the first node: set it on each node.",
				    node->nodes);
	if (!node->port)
		TRY(flags_spawn_read_variable(node, "MASTER_PORT",
					      "a port of the first node (or --port)", 1, 65535,
					      &node->port));
	if (!node->has_secret && !(insecure && strcmp(insecure, "1") == 0))
		return fail_invalid("--nodes %d without a launcher needs TUTTI_SECRET or "
				    "TUTTI_SECRET_FILE, the same on each node; or "
				    "TUTTI_INSECURE=1.",
				    node->nodes);
	return TUTTI_OK;
}

tutti_status tutti_train_spawn(const tutti_train_options *options, int (*fn)(void *arg), void *arg,
			       int *code)
{
	if (!options || !fn || !code)
		return fail_invalid("tutti_train_spawn needs options, a function and a place for "
				    "the code, not NULL.");
	struct flag_node node = {.fn = fn,
				 .arg = arg,
				 .nodes = options->nodes > 0 ? options->nodes : 1,
				 .port = options->port,
				 .has_secret =
					 getenv("TUTTI_SECRET") || getenv("TUTTI_SECRET_FILE")};

	if (options->num_gpus > 0)
		setenv("CUDA_VISIBLE_DEVICES", options->gpus, 1);
	bool is_launched = tutti_launched() != 0;
	node.devices = is_launched ? 1 : flags_spawn_devices_of(options);
	if (is_launched || (node.nodes == 1 && node.devices == 1)) {
		callback_call("the function", "tutti_train_spawn", -1, *code = fn(arg));
		return TUTTI_OK;
	}
	if (node.nodes > 1)
		TRY(flags_spawn_find_nodes(&node));
	tutti_status status = tutti_spawn(flags_spawn_run_rank, &node, node.devices);
	*code = tutti_spawn_exit_code();
	return status;
}

tutti_status tutti_train_ranks_check(const tutti_train_options *options, const tutti_comm *comm)
{
	if (!options || !comm)
		return fail_invalid("tutti_train_ranks_check needs options and a communicator, "
				    "not NULL.");
	int devices = options->devices, nodes = options->nodes;
	int size = tutti_size(comm), here = tutti_local_size(comm);
	if (devices > 0 && nodes > 0 && (int64_t)devices * nodes != size)
		return fail_invalid("--devices %d and --nodes %d are %lld ranks, but the launcher "
				    "has started %d: leave these flags to it.",
				    devices, nodes, (long long)devices * nodes, size);
	if (devices > 0 && nodes == 0 && devices != here)
		return fail_invalid("--devices %d: the launcher has started %d rank%s on the node "
				    "of rank %d: leave this flag to it.",
				    devices, here, here == 1 ? "" : "s", tutti_rank(comm));
	if (devices <= 0 && nodes > 0 && nodes != tutti_num_nodes(comm))
		return fail_invalid("--nodes %d: the launcher has started ranks on %d: leave this "
				    "flag to it.",
				    nodes, tutti_num_nodes(comm));
	return TUTTI_OK;
}
