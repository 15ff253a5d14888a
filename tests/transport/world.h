/* A fixture: n endpoints of one transport in this process, driven by this thread. Every wait in it
 * is bounded and fails the test. What the suite and the transports' own tests are written with. */
#ifndef TESTS_TRANSPORT_WORLD_H
#define TESTS_TRANSPORT_WORLD_H

#include "tests/transport/conformance.h"

#include "core/status.h"

#include <stdbool.h>
#include <stdint.h>

#include "tests/unit.h"
/* cmocka's fail would hide core/status.h's. */
#undef fail
#undef fail_msg
#define fail_msg(...) (print_error(__VA_ARGS__), print_error("\n"), _fail(__FILE__, __LINE__))

#define WORLD_RANKS       8
#define WORLD_CHANNELS    4
#define WORLD_TIMEOUT_MS 60000 /* no wait of a test takes longer                       */

/* A posted io of a test: the io comes first, so that the done list leads back here. */
struct post {
	struct tutti_io io;
	bool is_done;
	uint64_t when; /* completions of this world are counted from 1         */
};

struct world {
	const struct conformance *subject;
	int size;
	void *context;
	uint64_t completions;
	struct tutti_endpoint_config configs[WORLD_RANKS];
	struct tutti_endpoint *endpoints[WORLD_RANKS];
	struct tutti_conn *conns[WORLD_RANKS][WORLD_RANKS][WORLD_CHANNELS];
};

/* The transport under test and this run's seed; set by conformance_main. */
extern const struct conformance *subject;
extern uint64_t test_seed;

/* So many bytes or rounds, or fewer where the subject says that they cost much. */
size_t world_part(size_t whole);
void world_open(struct world *w, int size);
void world_open_with(struct world *w, int size, int timeout_ms);
void world_close(struct world *w); /* conns first, then endpoints */
/* rank's conn to peer, connected on first use; world_pair connects both ends. */
struct tutti_conn *world_conn(struct world *w, int rank, int peer, int channel);
void world_pair(struct world *w, int a, int b, int channel);
void world_hang_up(struct world *w, int rank, int peer, int channel);

void post_send(struct post *post, struct tutti_conn *conn, const void *buf, size_t bytes,
	       uint32_t tag);
void post_recv(struct post *post, struct tutti_conn *conn, void *buf, size_t bytes, uint32_t tag);

/* One pass over all endpoints (and the simulated world). Returns whether anything happened; if not,
 * others had the core. */
bool world_pump(struct world *w);
/* So many passes, which keep the core: beside busy processes each yield takes milliseconds. */
void world_pump_for(struct world *w, int passes);
/* Passes over one endpoint alone. */
void world_pump_only(struct world *w, int rank, int passes);
/* Until all n are done; fails the test when that takes too long. */
void world_finish(struct world *w, const struct post *posts, int n);
/* As finish, and every one of them is OK. */
void world_expect_ok(struct world *w, const struct post *posts, int n);

/* A config of endpoint rank of size; comm_id and key are the same for the same number. */
struct tutti_endpoint_config config_of(int rank, int size, uint64_t number, int timeout_ms);

/* Bytes that differ by seed and place. bytes_wrong: the first wrong index, or -1. */
void bytes_fill(void *buf, size_t bytes, uint64_t seed);
long bytes_wrong(const void *buf, size_t bytes, uint64_t seed);
uint64_t random_next(uint64_t *state);
size_t random_below(uint64_t *state, size_t n);

#define expect_bytes(buf, bytes, seed) assert_int_equal(bytes_wrong(buf, bytes, seed), -1)

#endif
