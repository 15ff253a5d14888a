/* Inside the simulated world: its threads and its clock. */
#ifndef TESTS_RPC_SIM_SIM_THREADS_H
#define TESTS_RPC_SIM_SIM_THREADS_H

#include <stdbool.h>
#include <stdint.h>

/* Ends the turn of this thread until *is_done, or until_ns. Returns *is_done. */
bool world_wait(const bool *is_done, uint64_t until_ns);
/* Whether this thread has locked a mutex. */
bool world_is_locked(void);

/* network.c, for the clock: what is due happens, and when the next is; UINT64_MAX: nothing is. */
uint64_t world_network_due(void);
int world_network_events(void);     /* that may happen now            */
void world_network_event(int event); /* lets one of them happen        */

#endif
