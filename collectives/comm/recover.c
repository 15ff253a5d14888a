/* tutti_recover: shrink, and grow where a launcher starts dead ranks again, until both have
 * succeeded. Whatever decides how it goes on is the same on all ranks: the result of an agreement,
 * or an error of the grow, which all of them have. */
#include "collectives/comm/join.h"

#include "core/clock.h"
#include "core/log.h"

#define NAME "tutti_recover"

static void recover_replace(struct tutti_comm **comm, struct tutti_comm *by)
{
	comm_free(*comm);
	*comm = by;
}

/* PEER: a rank has died again. */
static tutti_status recover_agree_to_grow(struct tutti_comm *comm, int size, uint64_t deadline,
					  int *grows)
{
	*grows = comm->size < size && comm->settings.env.max_restarts > 0 &&
		 clock_now_ns() < deadline;
	return comm_agree(comm, grows);
}

/* OK also where no new rank came. PEER or ABORTED: one has died, old or new. */
static tutti_status recover_grow(struct tutti_comm **comm, int size)
{
	struct tutti_comm *grown = NULL;
	tutti_status status = comm_grow(*comm, size, NULL, &grown);

	if (status == TUTTI_OK)
		recover_replace(comm, grown);
	if (status != TUTTI_ERR_TIMEOUT)
		return status;
	log_info(NAME ": %d of %d ranks go on: %s", (*comm)->size, size, last_error());
	return TUTTI_OK;
}

tutti_status comm_recover(struct tutti_comm **comm, int size)
{
	uint64_t deadline = deadline_after_ms((*comm)->settings.timeout_ms);
	tutti_status status;
	int grows;

	do {
		struct tutti_comm *survivors = NULL;
		TRY(comm_shrink(*comm, &survivors));
		recover_replace(comm, survivors);
		status = recover_agree_to_grow(*comm, size, deadline, &grows);
		if (status == TUTTI_OK && grows)
			status = recover_grow(comm, size);
	} while (status == TUTTI_ERR_PEER || status == TUTTI_ERR_ABORTED);
	if (status == TUTTI_OK)
		last_error_clear(); /* what was tried again is no error */
	return status;
}
