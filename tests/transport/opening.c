/* Cases of the suite: endpoints that are opened where next to nothing is allowed, and the peers
 * that an endpoint reaches. */
#include "tests/transport/cases.h"
#include "tests/transport/world.h"

#include "tests/entries.h"
#include "transport/registry.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define NUMBER 2000000 /* of these communicators */

static struct tutti_endpoint *open_as(const struct tutti_transport *transport, int rank,
				      const char *host_id)
{
	struct tutti_endpoint_config config = config_of(rank, 2, NUMBER, WORLD_TIMEOUT_MS);
	struct tutti_endpoint *endpoint = NULL;

	config.host_id = host_id;
	if (transport->open(&endpoint, &config) != TUTTI_OK)
		fail_msg("open: %s", last_error());
	return endpoint;
}

/* The address lies alone, so that AddressSanitizer sees a byte that is read behind it. */
static int reach(struct tutti_endpoint *from, int peer, const uint8_t *address, size_t bytes)
{
	uint8_t *alone = malloc(bytes ? bytes : 1);
	int answer;

	assert_non_null(alone);
	memcpy(alone, address, bytes);
	answer = from->transport->reach(from, peer, alone, bytes);
	free(alone);
	assert_true(answer >= 0);
	return answer;
}

static int reach_endpoint(struct tutti_endpoint *from, int peer, const struct tutti_endpoint *to)
{
	return reach(from, peer, to->address, to->address_bytes);
}

/* Rank 1, in a process that may open so many files more. */
static tutti_status open_with(struct tutti_endpoint **endpoint, int files)
{
	struct tutti_endpoint_config config = config_of(1, 2, NUMBER, WORLD_TIMEOUT_MS);
	struct rlimit before, few;
	int lowest = dup(STDERR_FILENO);
	tutti_status status;

	assert_int_equal(close(lowest), 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	few = before;
	few.rlim_cur = (rlim_t)(lowest + files);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	status = subject->transport->open(endpoint, &config);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	return status;
}

/* An endpoint for which there are too few descriptors is an error, or has no address and reaches no
 * rank; a message says why either way, and no descriptor is left. */
void test_few_descriptors(void **state)
{
	enum { MOST = 40, ENOUGH = 3 };
	struct tutti_endpoint *peer = open_as(subject->transport, 0, "conformance");
	int before = open_descriptors(), enough = 0;

	for (int files = 0; files < MOST && enough < ENOUGH; files++) {
		struct tutti_endpoint *endpoint = NULL;
		last_error_clear();
		tutti_status status = open_with(&endpoint, files);
		bool is_there = status == TUTTI_OK && endpoint->address_bytes > 0;
		enough = is_there ? enough + 1 : 0;
		if (!is_there && last_error()[0] == '\0')
			fail_msg("with %d descriptors more: %s, no address and no message", files,
				 tutti_status_string(status));
		if (status == TUTTI_OK) {
			assert_int_equal(reach_endpoint(peer, 1, endpoint) > 0, is_there);
			assert_int_equal(reach_endpoint(endpoint, 0, peer) > 0, is_there);
			subject->transport->destroy(endpoint);
		}
		if (open_descriptors() != before)
			fail_msg("with %d descriptors more: %d of them are left", files,
				 open_descriptors() - before);
	}
	assert_int_equal(enough, ENOUGH);
	subject->transport->destroy(peer);
}

/* What is no address of this transport, or not a whole one, reaches no rank. */
static void expect_not_reached(struct tutti_endpoint *from, const struct tutti_endpoint *peer)
{
	uint8_t bytes[TUTTI_ADDRESS_BYTES] = {0};
	uint64_t random = test_seed;

	memcpy(bytes, peer->address, peer->address_bytes);
	for (size_t n = 0; n <= sizeof bytes; n++)
		if (n != peer->address_bytes && reach(from, 1, bytes, n) != 0)
			fail_msg("reached by %zu bytes of an address of %zu", n,
				 peer->address_bytes);
	for (size_t i = 0; i < peer->address_bytes; i++) {
		bytes[i] ^= (uint8_t)(1 + random_below(&random, 255));
		reach(from, 1, bytes, peer->address_bytes);
		bytes[i] = peer->address[i];
	}
	for (int i = 0; i < 1000; i++) {
		size_t n = i % 2 ? random_below(&random, sizeof bytes) : peer->address_bytes;
		bytes_fill(bytes, sizeof bytes, random_next(&random));
		if (reach(from, 1, bytes, n) != 0)
			fail_msg("reached by %zu random bytes (seed %llu)", n,
				 (unsigned long long)test_seed);
	}
}

static void expect_no_other_transport(struct tutti_endpoint *from)
{
	const struct tutti_transport *list[TRANSPORTS_MAX];
	int count;

	assert_int_equal(transport_list(list, &count, NULL, NULL), TUTTI_OK);
	for (int i = 0; i < count; i++) {
		struct tutti_endpoint *other;
		if (list[i] == from->transport)
			continue;
		other = open_as(list[i], 1, "conformance");
		if (reach_endpoint(from, 1, other) != 0)
			fail_msg("reached by an address of %s", list[i]->name);
		list[i]->destroy(other);
	}
}

/* Both ends of a pair come to the same answer, on one host and on two. */
void test_reach(void **state)
{
	struct tutti_endpoint *mine = open_as(subject->transport, 0, "conformance");
	struct tutti_endpoint *near = open_as(subject->transport, 1, "conformance");
	struct tutti_endpoint *far = open_as(subject->transport, 1, "elsewhere");

	assert_true(reach_endpoint(mine, 1, near) > 0);
	assert_int_equal(reach_endpoint(mine, 1, near), reach_endpoint(near, 0, mine));
	assert_int_equal(reach_endpoint(mine, 1, far), reach_endpoint(far, 0, mine));
	assert_int_equal(reach_endpoint(mine, 0, mine), 0);
	expect_not_reached(mine, near);
	expect_no_other_transport(mine);
	subject->transport->destroy(far);
	subject->transport->destroy(near);
	subject->transport->destroy(mine);
}
