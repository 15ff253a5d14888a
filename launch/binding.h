/* The cores that each rank is bound to, and how many of them it has for its threads. */
#ifndef LAUNCH_BINDING_H
#define LAUNCH_BINDING_H

#include "options.h"

#include <stddef.h>

struct bindings; /* NULL: there is no hwloc, and no rank is bound */

/* Divides the cores that this process may use, and claims them (claims.h) for as long as it lives.
 * Returns 0, or the exit code after a message on stderr. */
int bindings_make(struct bindings **bindings, const struct options *options);
/* In the local-th rank, before its program runs. */
void bindings_apply(const struct bindings *bindings, int local);
/* How many threads the rank has a core for, 1 at least. */
int bindings_cores(const struct bindings *bindings, int local, const struct options *options);
/* Writes on stderr to which cores each rank is bound, or why to none. */
void bindings_report(const struct bindings *bindings, const struct options *options);
/* The CPUs of the local-th rank, "0-3,8"; "any": it is not bound. Returns text. */
const char *bindings_cpus(const struct bindings *bindings, int local, char *text, size_t bytes);
void bindings_free(struct bindings *bindings);

#endif
