/* The one suite that every transport passes. A transport's own test file is its name:
 *
 *     int main(void)
 *     {
 *             static const struct conformance subject = {.transport = &transport_tcp};
 *             return conformance_main(&subject);
 *     }
 *
 * The suite drives several endpoints from one thread, then from threads that sleep on event_fd,
 * then from forked processes. A transport that lives in a simulated world fills in the world_
 * functions; those parts that need a second thread or process are then left out. TEST_SEED=n
 * repeats a run. */
#ifndef TESTS_TRANSPORT_CONFORMANCE_H
#define TESTS_TRANSPORT_CONFORMANCE_H

#include <tutti/transport.h>

#include <stdbool.h>

struct conformance {
	const struct tutti_transport *transport;

	/* NULL for real transports. The world is config->context of every endpoint in it. */
	void *(*world_create)(int size, uint64_t seed);
	void (*world_destroy)(void *world);
	int (*world_step)(void *world); /* 0: nothing is on its way                 */
	void (*world_kill)(void *world, int rank);

	bool has_checksums;  /* tcp: with TUTTI_CHECKSUM=1                       */
	bool has_tls;        /* tcp: with TUTTI_TLS=1                            */
	int reconnect;       /* tcp: as TUTTI_RECONNECT                          */
	bool is_one_process; /* reaches only ranks of its own process    */
	int costs;           /* where a byte takes a hundred times as long: long messages have one in
	                      * so many, and there are fewer rounds; 0: all of them      */
};

int conformance_main(const struct conformance *subject);

#endif
