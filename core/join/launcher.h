/* The variables that launchers set: a table with a row for each. */
#ifndef CORE_JOIN_LAUNCHER_H
#define CORE_JOIN_LAUNCHER_H

#include "core/join/rendezvous.h"

#include <stdbool.h>

#define WORLD_MAX 65536
/* Where ports are derived from a job's number: below those that systems hand out themselves. */
#define DERIVED_PORT_FIRST 12000
#define DERIVED_PORTS      16384

struct launcher {
	const char *name;
	bool (*is_here)(void);
	tutti_status (*who)(struct job *job);   /* rank, size, local_rank, local_size, launcher */
	tutti_status (*where)(struct job *job); /* host, port, port_is_taken                    */
};

/* NULL: started by hand, without any variable. */
const struct launcher *launcher_here(void);
/* MASTER_ADDR and MASTER_PORT, of any launcher. */
tutti_status launcher_master(struct job *job);

/* The first host of Slurm's "node[01-03,7],gpu5": node01. INVALID when it is no such list. */
tutti_status hostlist_first(const char *list, char *host, size_t host_bytes);
/* TensorFlow's {"cluster": {"worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}.
 * Ranks are the chief, if there is one, then the workers in order. */
tutti_status tf_config_read(struct job *job, const char *text);

#endif
