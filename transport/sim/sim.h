/* sim: a simulated network of n ranks in one thread, seeded, with a virtual clock.
 *
 * A message takes alpha + bytes * beta on its link, links are per ordered pair. order SIM_RANDOM delivers
 * in any order that the conns' FIFO rule allows, as the seed says, and reads the sender's buffer only
 * at delivery (the harshest meaning of a send); SIM_TIMED delivers by virtual time and predicts. */
#ifndef TRANSPORT_SIM_SIM_H
#define TRANSPORT_SIM_SIM_H

#include <tutti/transport.h>

#include <stdbool.h>

extern const struct tutti_transport transport_sim;   /* config->context is the struct sim */

enum sim_order { SIM_RANDOM, SIM_TIMED };

struct sim_config {
	int size;
	uint64_t seed;
	enum sim_order order;
	double alpha_ns, beta_ns;      /* of a message; per byte                                */
	bool dry;                      /* move no bytes: buffers may be NULL                    */
};

struct sim;
tutti_status sim_create(struct sim **sim, const struct sim_config *config);
void sim_destroy(struct sim *sim);
/* Delivers the next message. Returns 0 when nothing is deliverable; else the two ranks whose endpoints
 * now have completions are in ranks. */
int sim_step(struct sim *sim, int ranks[2]);
uint64_t sim_now_ns(void *sim);        /* the virtual clock; fits engine_config.now_ns */
uint64_t sim_messages(const struct sim *sim);
/* Faults: the rank's process dies now; the next message of a pair arrives delay_ns later. */
void sim_kill(struct sim *sim, int rank);
void sim_delay(struct sim *sim, int from, int to, uint64_t delay_ns);
/* Moves the clock when nothing is under way (for deadlines). */
void sim_advance(struct sim *sim, uint64_t ns);

#endif
