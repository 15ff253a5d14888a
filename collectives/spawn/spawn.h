/* tutti_spawn's ranks: what other files of this folder need of them. */
#ifndef COLLECTIVES_SPAWN_SPAWN_H
#define COLLECTIVES_SPAWN_SPAWN_H

/* Writes what stdio has in memory. NULL, or why some output of this process is lost. */
const char *spawn_output_lost(void);

#endif
