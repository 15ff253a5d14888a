/* sim: a simulated network of n ranks in one thread, seeded, with a virtual clock.
 *
 * A message takes alpha + bytes * beta on its link; between ranks of one node, if nodes are given,
 * both are the local ones. Links are per ordered pair and serve one message at a time. With ports a
 * rank as a whole sends one message at a time, and receives one at a time, in the order of arrival:
 * that is what makes many senders of one receiver slow. order SIM_RANDOM delivers in any order that
 * the conns' FIFO rule allows, as the seed says; a send completes at delivery and its buffer is
 * read only then (the harshest meaning of a send), or early, copied, in a step of its own (the
 * mildest), as the seed says. SIM_TIMED delivers by virtual time and predicts; there a send
 * completes at delivery. progress only hands out what sim_step has done. */
#ifndef TESTS_SIM_SIM_H
#define TESTS_SIM_SIM_H

#include <tutti/transport.h>

#include <stdbool.h>

extern const struct tutti_transport transport_sim;   /* config->context is the struct sim */

enum sim_order { SIM_RANDOM, SIM_TIMED };

struct sim_config {
	int size;
	uint64_t seed;
	enum sim_order order;
	double alpha_ns, beta_ns;      /* of a message; per byte                                */
	const int *nodes;              /* of each rank, copied; NULL: there are no local links  */
	double local_alpha_ns, local_beta_ns;
	bool has_ports;                /* matters to SIM_TIMED only                             */
	bool dry;                      /* move no bytes: buffers may be NULL                    */
};

struct sim;
tutti_status sim_create(struct sim **sim, const struct sim_config *config);
void sim_destroy(struct sim *sim);      /* after its endpoints; NULL is fine */
/* Delivers the next message. Returns 0 when nothing is deliverable; else the two ranks whose
 * endpoints now have completions are in ranks (one rank twice when only its own end has: an early
 * send, or what a close, a kill or a failed conn has ended, which is told before the next message
 * moves). */
int sim_step(struct sim *sim, int ranks[2]);
uint64_t sim_now_ns(void *sim);        /* the virtual clock; fits engine_config.now_ns */
uint64_t sim_messages(const struct sim *sim);
/* Faults: the rank's process dies now, and what is on its way from and to it is lost; the next
 * message of a pair arrives delay_ns later. (SIM_RANDOM: when the clock gets there, or nothing else
 * is left.) */
void sim_kill(struct sim *sim, int rank);
void sim_delay(struct sim *sim, int from, int to, uint64_t delay_ns);
/* Moves the clock when nothing is in flight (for deadlines). */
void sim_advance(struct sim *sim, uint64_t ns);

#endif
