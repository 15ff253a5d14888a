/* Communicators, as tutti.h declares them: arguments are checked here, and collectives/comm makes
 * and ends them. */
#include "collectives/api/group.h"
#include "collectives/engine/engine.h"

#include "core/callback.h"
#include "core/forks.h"
#include "core/join/rendezvous.h"

#include <stdio.h>

tutti_status tutti_init(tutti_comm **comm, const tutti_config *config)
{
	last_error_clear();
	TRY(forks_check("tutti_init"));
	if (!comm)
		return fail(TUTTI_ERR_INVALID, "tutti_init: comm is NULL");
	TRY(comm_init(comm, config));
	rendezvous_tell_launcher(LAUNCHER_JOINED);
	return TUTTI_OK;
}

int tutti_launched(void)
{
	int size;

	last_error_clear();
	return job_launched(&size) == TUTTI_OK ? size : -1;
}

tutti_status tutti_init_all(tutti_comm **comms, int n, const tutti_config *config)
{
	last_error_clear();
	TRY(forks_check("tutti_init_all"));
	if (!comms || n < 1)
		return fail(TUTTI_ERR_INVALID, "tutti_init_all: comms is %p and n is %d",
			    (void *)comms, n);
	TRY(comm_init_all(comms, n, config));
	if (config && config->local_ranks)
		rendezvous_tell_launcher(LAUNCHER_JOINED);
	return TUTTI_OK;
}

tutti_status tutti_rendezvous_open(char *url, size_t url_bytes)
{
	struct env env;

	last_error_clear();
	if (!url || url_bytes == 0)
		return fail(TUTTI_ERR_INVALID,
			    "tutti_rendezvous_open: url is NULL or url_bytes is 0");
	TRY(env_load(&env));
	return rendezvous_serve(url, url_bytes, &env);
}

tutti_status tutti_rendezvous_close(const char *url)
{
	last_error_clear();
	if (!url)
		return fail(TUTTI_ERR_INVALID, "tutti_rendezvous_close: url is NULL");
	return rendezvous_unserve(url);
}

/* comm, and where its result goes. */
static tutti_status communicator_check(const char *name, const tutti_comm *comm,
				       const char *result_name, const void *result)
{
	last_error_clear();
	TRY(forks_check(name));
	if (comm && result)
		return TUTTI_OK;
	fail(TUTTI_ERR_INVALID, "%s: %s is NULL", name, comm ? result_name : "comm");
	return comm ? engine_name_error(comm->engine, TUTTI_ERR_INVALID) : TUTTI_ERR_INVALID;
}

tutti_status tutti_comm_split(tutti_comm *comm, int color, int key, const tutti_config *config,
			      tutti_comm **child)
{
	TRY(communicator_check("tutti_comm_split", comm, "child", child));
	group_note_errors();
	TRY(group_refuse("tutti_comm_split"));
	return engine_name_error(comm->engine, comm_split(comm, color, key, config, child));
}

static tutti_status communicator_check_list(const tutti_comm *comm, const int *ranks, int n,
					    int tag)
{
	static const char name[] = "tutti_comm_create_from";
	bool is_listed = false;

	if (tag < 0)
		return fail(TUTTI_ERR_INVALID, "%s: tag is %d: it must not be negative", name, tag);
	if (!ranks || n < 1 || n > comm->size)
		return fail(TUTTI_ERR_INVALID,
			    "%s: ranks is %p and n is %d: it lists 1 to %d ranks", name,
			    (const void *)ranks, n, comm->size);
	for (int i = 0; i < n; i++) {
		if (ranks[i] < 0 || ranks[i] >= comm->size)
			return fail(TUTTI_ERR_INVALID, "%s: ranks[%d] is %d, not in 0..%d", name, i,
				    ranks[i], comm->size - 1);
		for (int k = 0; k < i; k++)
			if (ranks[k] == ranks[i])
				return fail(TUTTI_ERR_INVALID, "%s: ranks lists rank %d twice",
					    name, ranks[i]);
		is_listed |= ranks[i] == comm->rank;
	}
	if (is_listed)
		return TUTTI_OK;
	return fail(TUTTI_ERR_INVALID,
		    "%s: rank %d is not in ranks: only those that are listed call it", name,
		    comm->rank);
}

tutti_status tutti_comm_create_from(tutti_comm *comm, const int *ranks, int n, int tag,
				    const tutti_config *config, tutti_comm **child)
{
	TRY(communicator_check("tutti_comm_create_from", comm, "child", child));
	group_note_errors();
	TRY(group_refuse("tutti_comm_create_from"));
	tutti_status status = communicator_check_list(comm, ranks, n, tag);
	if (status == TUTTI_OK)
		status = comm_create_from(comm, ranks, n, tag, config, child);
	return engine_name_error(comm->engine, status);
}

tutti_status tutti_comm_dup(tutti_comm *comm, tutti_comm **copy)
{
	TRY(communicator_check("tutti_comm_dup", comm, "copy", copy));
	group_note_errors();
	TRY(group_refuse("tutti_comm_dup"));
	return engine_name_error(comm->engine, comm_dup(comm, copy));
}

tutti_status tutti_comm_shrink(tutti_comm *comm, tutti_comm **survivors)
{
	TRY(communicator_check("tutti_comm_shrink", comm, "survivors", survivors));
	TRY(group_refuse("tutti_comm_shrink"));
	return engine_name_error(comm->engine, comm_shrink(comm, survivors));
}

tutti_status tutti_comm_grow(tutti_comm *comm, int size, const tutti_config *config,
			     tutti_comm **grown)
{
	TRY(communicator_check("tutti_comm_grow", comm, "grown", grown));
	TRY(group_refuse("tutti_comm_grow"));
	return engine_name_error(comm->engine, comm_grow(comm, size, config, grown));
}

tutti_status tutti_recover(tutti_comm **comm, int size)
{
	TRY(communicator_check("tutti_recover", comm ? *comm : NULL, "comm", comm));
	TRY(group_refuse("tutti_recover"));
	if (size < 1)
		return fail(TUTTI_ERR_INVALID, "tutti_recover: size is %d: it is at least 1", size);
	tutti_status status = comm_recover(comm, size);
	return engine_name_error((*comm)->engine, status);
}

tutti_status tutti_comm_agree(tutti_comm *comm, int *flag)
{
	TRY(communicator_check("tutti_comm_agree", comm, "flag", flag));
	TRY(group_refuse("tutti_comm_agree"));
	return engine_name_error(comm->engine, comm_agree(comm, flag));
}

tutti_status tutti_comm_abort(tutti_comm *comm)
{
	char text[80];

	TRY(communicator_check("tutti_comm_abort", comm, NULL, comm));
	/* Before the failure is there: a rank that hears of it may begin to recover. */
	atomic_fetch_add(&comm->recovery.aborts, 1);
	snprintf(text, sizeof text, "tutti_comm_abort was called on rank %d", comm->rank);
	engine_abort(comm->engine, text);
	return TUTTI_OK;
}

/* A forked process has only a picture of it: what is in use there is the other process's. */
void tutti_comm_destroy(tutti_comm *comm)
{
	if (!forks_is_orphan && !callback_refuses("tutti_comm_destroy"))
		comm_free(comm);
}

tutti_status tutti_comm_config(const tutti_comm *comm, tutti_config *config)
{
	last_error_clear();
	if (!comm || !config)
		return fail(TUTTI_ERR_INVALID, "tutti_comm_config: %s is NULL",
			    comm ? "config" : "comm");
	*config = comm_config(comm);
	return TUTTI_OK;
}
