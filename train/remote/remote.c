/* The parameters and contexts of an rpc: made when a thread first asks for them, and freed with the
 * rpc, which tells of deaths. */
#include "train/remote/remote.h"

#include "rpc/extension.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void remote_free(struct remote *remote)
{
	remote_params_free(remote);
	pthread_cond_destroy(&remote->unlocked);
	pthread_mutex_destroy(&remote->registering);
	pthread_mutex_destroy(&remote->lock);
	free(remote);
}

static void remote_destroy(void *arg)
{
	struct remote *remote = arg;

	pthread_mutex_lock(&remote->lock);
	while (remote->contexts)
		context_remove(remote, remote->contexts);
	pthread_mutex_unlock(&remote->lock);
	remote_free(remote);
}

/* Two rpcs of a process, or of two jobs, hardly have the same. */
static uint64_t salt_of(const struct remote *remote)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return random_mix((uint64_t)now.tv_nsec ^ (uint64_t)now.tv_sec << 30 ^
			  (uint64_t)getpid() << 44 ^ (uint64_t)(uintptr_t)remote);
}

static struct remote *remote_make(tutti_rpc *rpc)
{
	struct remote *remote = calloc(1, sizeof *remote);

	if (!remote)
		return NULL;
	remote->rpc = rpc;
	remote->rank = tutti_rpc_rank(rpc);
	remote->size = tutti_rpc_size(rpc);
	remote->salt = salt_of(remote);
	pthread_mutex_init(&remote->lock, NULL);
	pthread_mutex_init(&remote->registering, NULL);
	pthread_cond_init(&remote->unlocked, NULL);
	return remote;
}

/* Those that never wait are short: a participant whose threads all wait for the beginner can still
 * end what it has. */
static tutti_status register_functions(struct remote *remote)
{
	const tutti_rpc_function functions[] = {
		{.name = "tutti.context.join", .fn = context_on_join, .flags = TUTTI_RPC_SHORT},
		{.name = "tutti.context.end", .fn = context_on_end, .flags = TUTTI_RPC_SHORT},
		{.name = "tutti.context.measure", .fn = update_on_measure},
		{.name = "tutti.context.update", .fn = update_on_apply},
	};

	for (; remote->num_registered < sizeof functions / sizeof *functions;
	     remote->num_registered++) {
		tutti_rpc_function function = functions[remote->num_registered];
		function.arg = remote;
		TRY(rpc_extension_register(remote->rpc, &function));
	}
	return TUTTI_OK;
}

struct remote *remote_of_known(tutti_rpc *rpc)
{
	return rpc_extension_data(rpc);
}

struct remote *remote_of(tutti_rpc *rpc, const char *call, tutti_status *status)
{
	struct remote *remote = NULL;

	if (!rpc) {
		*status = fail_invalid("%s: the rpc is NULL.", call);
		return NULL;
	}
	if (!rpc_extension_data(rpc)) {
		remote = remote_make(rpc);
		if (!remote) {
			*status = fail_no_memory("the contexts of an rpc");
			return NULL;
		}
		if (!rpc_extension_set(rpc, &(struct rpc_extension){.data = remote,
								    .died = contexts_died,
								    .destroy = remote_destroy}))
			remote_free(remote); /* another thread was first */
	}
	remote = rpc_extension_data(rpc);
	pthread_mutex_lock(&remote->registering);
	*status = register_functions(remote);
	pthread_mutex_unlock(&remote->registering);
	return *status == TUTTI_OK ? remote : NULL;
}

int remote_context_count(tutti_rpc *rpc)
{
	struct remote *remote = remote_of_known(rpc);
	int count = 0;

	if (!remote)
		return 0;
	pthread_mutex_lock(&remote->lock);
	for (struct remote_context *context = remote->contexts; context; context = context->next)
		count++;
	pthread_mutex_unlock(&remote->lock);
	return count;
}
