/* What would break: a rank, by messages of another rank that is broken: lengths, numbers and orders
 * that cannot be. It may lose that rank's calls, but no others, and touches no memory beyond. */
#include "rpc/rpc_internal.h"
#include "tests/random.h"
#include "tests/rpc/rpc_ranks.h"
#include "tests/whole.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit.h"

static struct rpc_message request(size_t bytes)
{
	struct rpc_message m = {
		.kind = RPC_REQUEST, .slot = 3, .id = 7, .bytes = bytes, .name_bytes = 4};

	memcpy(m.data + RPC_INLINE_BYTES - 4, "echo", 4);
	return m;
}

static void sound_messages(void **state)
{
	struct rpc_message m = request(RPC_INLINE_BYTES - 4);
	tutti_rpc_piece two[] = {{NULL, 5}, {NULL, 1000}};

	assert_true(rpc_message_is_sound(&m));
	m.bytes++;
	assert_false(rpc_message_is_sound(&m)); /* it would overlap the name */
	m = request(1005);
	rpc_message_set_pieces(&m, two, 2);
	assert_true(rpc_message_is_sound(&m));
	m.bytes++;
	assert_false(rpc_message_is_sound(&m));
	m.bytes -= 2;
	assert_false(rpc_message_is_sound(&m));
	m = request(1005);
	rpc_message_set_pieces(&m, two, 2);
	m.comes_along = 1;
	assert_false(rpc_message_is_sound(&m)); /* in one piece */
	m = request(0);
	m.slot = RPC_CALLS_MAX;
	assert_false(rpc_message_is_sound(&m));
	m = request(0);
	m.num_pieces = TUTTI_RPC_PIECES + 1;
	assert_false(rpc_message_is_sound(&m));
	m = request(0);
	m.name_bytes = 0;
	assert_false(rpc_message_is_sound(&m));
	m = request(0);
	m.kind = RPC_REPLY;
	m.status = TUTTI_ERR_INTERNAL + 1;
	assert_false(rpc_message_is_sound(&m));
}

/* Sound in part: such a message gets far. */
static struct rpc_message some_message(uint64_t *seed)
{
	struct rpc_message m = request(random_below(seed, 250));

	m.kind = 1 + (uint32_t)random_below(seed, RPC_STATE);
	m.slot = (uint32_t)random_below(seed, 8);
	m.id = 1 + random_below(seed, 6);
	m.is_one_way = (uint8_t)random_below(seed, 2);
	m.is_coming = (uint8_t)random_below(seed, 2);
	if (random_below(seed, 3) == 0) {
		tutti_rpc_piece piece = {NULL, 1 + random_below(seed, 20000)};
		m.bytes = piece.bytes;
		rpc_message_set_pieces(&m, &piece, 1);
		m.comes_along = (uint8_t)random_below(seed, 2);
	}
	if (random_below(seed, 3) == 0)
		((uint8_t *)&m)[random_below(seed, 64)] ^= (uint8_t)random_below(seed, 256);
	return m;
}

static void broken_rank(struct rank *rank)
{
	struct rpc_rank r;
	uint64_t seed = rank->seed;
	const int messages = whole_or(3000, 1000, 300);

	rpc_open(&r, rank, NULL);
	RPC_OK(&r, tutti_barrier(rank->comm, NULL));
	for (int i = 0; i < messages && rank->rank == 1; i++) {
		struct rpc_message m = some_message(&seed);
		int tag = random_below(&seed, 8) ? RPC_TAG_NOTES : RPC_TAG_REPLY + (int)m.slot;
		rpc_lock(r.rpc);
		rpc_post(r.rpc, &m, 0, tag);
		rpc_unlock(r.rpc);
	}
	for (int i = 0; i < 50; i++)
		if (rank->rank != 1)
			rpc_check_echo(&r, (rank->rank + 2) % 4, "echo", (size_t)i * 300, seed);
	RPC_OK(&r, tutti_barrier(rank->comm, NULL));
	tutti_rpc_abort(r.rpc); /* what the broken rank has begun never ends */
	tutti_rpc_destroy(r.rpc);
}

static void a_rank_sends_nonsense(void **state)
{
	const char *given = getenv("TEST_SEED");
	uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)getpid() * 1000;

	print_message("TEST_SEED=%llu\n", (unsigned long long)seed);
	setenv("TUTTI_LOG", "off", 1);
	for (int i = 0; i < 3; i++)
		with_ranks(4, i % 2 ? "tcp" : NULL, seed + (unsigned)i, broken_rank);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sound_messages),
		cmocka_unit_test(a_rank_sends_nonsense),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
