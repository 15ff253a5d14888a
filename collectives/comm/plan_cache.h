/* The plans that a communicator has built, kept for its life: one serves every size, pointer and
 * dtype. */
#ifndef COLLECTIVES_COMM_PLAN_CACHE_H
#define COLLECTIVES_COMM_PLAN_CACHE_H

#include "collectives/comm/comm.h"

/* Builds it where there is none yet. MEMORY. */
tutti_status plan_cache_find(struct tutti_comm *comm, const struct algorithm *algorithm,
			     const struct plan_key *key, const struct plan **plan);
void plan_cache_free(struct tutti_comm *comm);
/* Its row in the table of algorithms. */
int plan_cache_index(const struct algorithm *algorithm);

#endif
