/* The transports of this build, best first, and the plugin that TUTTI_TRANSPORT_PLUGIN names. */
#ifndef TRANSPORT_REGISTRY_H
#define TRANSPORT_REGISTRY_H

#include "core/env.h"

#include <tutti/transport.h>

#include <stdbool.h>

#define TRANSPORTS_MAX 8

extern const struct tutti_transport transport_shm, transport_tcp;
#ifdef TUTTI_VERBS
extern const struct tutti_transport transport_verbs;
#endif
#ifdef TUTTI_UCX
extern const struct tutti_transport transport_ucx;
#endif

/* The transports that filter ("shm,tcp" or "^verbs"; NULL: all) admits. INVALID names an unknown
 * one and lists those that are here. */
tutti_status transport_list(const struct tutti_transport **list, int *count, const char *filter,
                            const struct env *env);
/* Of a list that is not empty: the transport that reaches the most ranks. */
const struct tutti_transport *transport_widest(const struct tutti_transport *const *list,
					       int count);
/* Whether the filter has admitted shared memory, so that ranks of a host may have a window. */
bool transport_shares_memory(const struct tutti_transport *const *list, int count);
/* "shm,tcp": the names of a list. Returns text. */
const char *transport_names(const struct tutti_transport *const *list, int count, char *text,
                            size_t bytes);

#endif
