/* Would break: two ranks whose ports are not alike: they connect by those that reach each other,
 * whatever their order and number, or an error says which do not. */
#include "tests/core/memory/proof_kind.h"
#include "tests/transport/verbs/fake/on_fake.h"

#include "transport/registry.h"
#include "transport/verbs/verbs.h"

#include <stdlib.h>
#include <string.h>

#define BYTES ((size_t)3 << 20)

static const struct conformance verbs = {.transport = &transport_verbs, .is_one_process = true};
static struct world w;
static uint8_t *out, *in; /* registered */
static uint8_t *protected;

/* InfiniBand, which is fast, and RoCE: fake_0 has a port of each, fake_1 is RoCE. The other way
 * round: fake_2 and fake_3. */
static void configure(struct fake_config *config)
{
	struct fake_config infiniband;

	fake_config_roce(config, test_seed);
	fake_config_infiniband(&infiniband, test_seed);
	for (int d = FAKE_DEVICES - 1; d >= 0; d--) {
		config->device[d] = d % 2 ? config->device[0] : infiniband.device[0];
		config->device[d].port[0].speed = d % 3 ? 1 : 32;
	}
	config->device[0].ports = 2;
	config->device[0].port[1] = config->device[1].port[0];
	config->devices = FAKE_DEVICES;
}

static void open_with(const char *devices_of_0, const char *devices_of_1)
{
	const char *devices[] = {devices_of_0, devices_of_1};

	world_open(&w, 2);
	for (int r = 0; r < 2; r++) {
		transport_verbs.destroy(w.endpoints[r]);
		w.configs[r].devices = devices[r];
		assert_int_equal(transport_verbs.open(&w.endpoints[r], &w.configs[r]), TUTTI_OK);
	}
}

/* Both ways: short, from and into registered memory, and copied. */
static void exchange(void)
{
	const size_t sizes[] = {0, 100, BYTES / 2};
	uint8_t *copied = malloc(BYTES);
	struct post posts[2];

	assert_non_null(copied);
	for (int i = 0; i < 8; i++)
		for (size_t s = 0; s < 3; s++) {
			uint8_t *from = i & 2 ? copied : out, *to = i & 4 ? copied + BYTES / 2 : in;
			bytes_fill(from, sizes[s], (uint64_t)i);
			post_recv(&posts[1], world_conn(&w, 1 - i % 2, i % 2, 0), to, sizes[s], 1);
			post_send(&posts[0], world_conn(&w, i % 2, 1 - i % 2, 0), from, sizes[s],
				  1);
			world_expect_ok(&w, posts, 2);
			expect_bytes(to, sizes[s], (uint64_t)i);
		}
	free(copied);
}

/* Both ways from and into protected memory. */
static void exchange_mapped(void)
{
	struct post posts[2];
	void *maps[2];

	for (int r = 0; r < 2; r++)
		assert_int_equal(
			transport_verbs.map(w.endpoints[r], PROOF_KIND, protected, BYTES, &maps[r]),
			TUTTI_OK);
	for (int r = 0; r < 2; r++) {
		bytes_fill(out, BYTES / 2, (uint64_t)r);
		proof_write(protected, out, BYTES / 2);
		on_fake_post(&posts[0], w.conns[1 - r][r][0], false, protected + BYTES / 2,
			     BYTES / 2, maps[1 - r]);
		on_fake_post(&posts[1], w.conns[r][1 - r][0], true, protected, BYTES / 2, maps[r]);
		world_expect_ok(&w, posts, 2);
		proof_read(in, protected + BYTES / 2, BYTES / 2);
		expect_bytes(in, BYTES / 2, (uint64_t)r);
	}
	for (int r = 0; r < 2; r++)
		transport_verbs.unmap(w.endpoints[r], maps[r]);
}

static void test_ports_differ(void **state)
{
	static const struct {
		const char *devices[2];
		int rails;
	} cases[] = {
		{{"fake_0,fake_1", "fake_2,fake_3"}, 2},
		{{"fake_0,fake_1", "fake_3"}, 1},
		{{"fake_0", "fake_3"}, 1},
		{{"fake_3", "fake_0"}, 1},
		{{"fake_0,fake_1", "fake_2"}, 1},
		{{"fake_1", "fake_2,fake_3"}, 1},
		{{"fake_0,fake_1,fake_2,fake_3", "fake_3,fake_1"}, 2},
		{{"fake_0,fake_1,fake_2,fake_3", "fake_0,fake_1,fake_2,fake_3"}, 4},
	};
	struct fake_config config;

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		configure(&config);
		fake_start(&config);
		open_with(cases[i].devices[0], cases[i].devices[1]);
		exchange();
		exchange_mapped();
		for (int r = 0; r < 2; r++) {
			const struct verbs_conn *conn = (struct verbs_conn *)w.conns[r][1 - r][0];
			assert_int_equal(conn->rail_count, cases[i].rails);
		}
		world_close(&w);
		assert_true(fake_is_clean());
	}
}

/* One end's device has no immediate data: the other sends none. */
static void test_one_without_immediate(void **state)
{
	struct fake_config config;

	for (int without = 0; without < 2; without++) {
		fake_config_roce(&config, test_seed);
		config.device[1] = config.device[0];
		config.devices = 2;
		config.device[without].has_no_immediate = true;
		fake_start(&config);
		open_with("fake_0", "fake_1");
		exchange();
		assert_int_equal(fake_count().immediates, 0);
		world_close(&w);
		assert_true(fake_is_clean());
	}
}

/* RoCE v2 over IPv4 does not reach RoCE v2 over IPv6: other transports have to do. */
static void test_families(void **state)
{
	struct fake_config config;

	fake_config_roce(&config, test_seed);
	config.device[1] = config.device[0];
	config.devices = 2;
	memset(&config.device[0].port[0].gids[2], 0, 2 * sizeof(struct fake_gid)); /* 10.0.0.1 */
	fake_start(&config);
	open_with("fake_0", "fake_1");
	for (int r = 0; r < 2; r++) {
		const struct tutti_endpoint *peer = w.endpoints[1 - r];
		assert_int_equal(transport_verbs.reach(w.endpoints[r], 1 - r, peer->address,
						       peer->address_bytes),
				 0);
	}
	world_close(&w);
	open_with("fake_0", "fake_0");
	exchange();
	world_close(&w);
	assert_true(fake_is_clean());
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ports_differ),
		cmocka_unit_test(test_one_without_immediate),
		cmocka_unit_test(test_families),
	};

	subject = &verbs;
	test_seed = on_fake_seed();
	out = on_fake_registered(BYTES);
	in = on_fake_registered(BYTES);
	if (proof_kind_use(test_seed) != TUTTI_OK || !(protected = proof_alloc(BYTES)))
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
