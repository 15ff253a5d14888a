/* Errors that all ranks of a communicator return. */
#include "collectives/api/agreed_error.h"

/* The ranks could not agree. This rank's own failure explains more than that, unless it merely
 * follows from another rank's and a rank has died. */
static tutti_status error_without_agreement(const struct kept_error *own, tutti_status status)
{
	bool is_cause = own->status != TUTTI_OK &&
			!(status_is_secondary(own->status) && status == TUTTI_ERR_PEER);

	return is_cause ? kept_error_return(own) : status;
}

tutti_status error_broadcast(tutti_comm *comm, struct kept_error *error, int root)
{
	bool is_root = root == tutti_rank(comm);
	tutti_status sent =
		tutti_broadcast(error, error, sizeof *error, TUTTI_U8, root, comm, NULL);

	if (sent != TUTTI_OK)
		return is_root ? error_without_agreement(error, sent) : sent;
	if (is_root)
		return kept_error_return(error);
	return fail(error->status, "On rank %d: %s", root, error->message);
}

/* The least number is the cause: first the ranks with an error of their own, then those with a
 * secondary one, then those with none. */
tutti_status error_agree(tutti_comm *comm, tutti_status own)
{
	struct kept_error error = kept_error_of(own);
	int32_t size = tutti_size(comm);
	int32_t group = own == TUTTI_OK ? 2 : status_is_secondary(own) ? 1 : 0;
	int32_t first = group * size + tutti_rank(comm);

	tutti_status agreed = tutti_all_reduce(&first, &first, 1, TUTTI_I32, TUTTI_MIN, comm, NULL);
	if (agreed != TUTTI_OK)
		return error_without_agreement(&error, agreed);
	return first / size == 2 ? TUTTI_OK : error_broadcast(comm, &error, first % size);
}
