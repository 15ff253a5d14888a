/* Would break: an endpoint that cannot use its devices, or uses the wrong port or GID, and does not
 * say what each lacks. */
#include "tests/transport/verbs/fake/on_fake.h"

#include "core/status.h"
#include "transport/registry.h"
#include "transport/verbs/verbs.h"

#include <errno.h>
#include <string.h>

static const struct conformance verbs = {.transport = &transport_verbs, .is_one_process = true};
static uint64_t seed;

static void start(void)
{
	struct fake_config config;

	fake_config_roce(&config, seed);
	fake_start(&config);
	last_error_clear();
}

/* An endpoint that cannot use its device has no address, and says why. */
static void test_open_fails(void **state)
{
	static const struct {
		enum fake_call call;
		int error;
		const char *words;
	} cases[] = {
		{FAKE_GET_DEVICE_LIST, ENOSYS, "ibv_get_device_list"},
		{FAKE_OPEN_DEVICE, EACCES, "fake_0: Permission denied"},
		{FAKE_ALLOC_PD, ENOMEM, "fake_0: Cannot allocate memory"},
		{FAKE_QUERY_DEVICE, EIO, "fake_0"},
		{FAKE_QUERY_PORT, EIO, "fake_0, port 1: cannot be queried"},
		{FAKE_CREATE_CHANNEL, EMFILE, "ibv_create_comp_channel"},
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct tutti_endpoint_config config = config_of(0, 2, i, WORLD_TIMEOUT_MS);
		struct tutti_endpoint *endpoint;
		start();
		fake_fail_call(cases[i].call, 0, cases[i].error);
		assert_int_equal(transport_verbs.open(&endpoint, &config), TUTTI_OK);
		assert_int_equal(endpoint->address_bytes, 0);
		EXPECT_WORDS(last_error(), "verbs", cases[i].words);
		transport_verbs.destroy(endpoint);
		fake_repair();
		assert_true(fake_is_clean());
	}
}

/* A port that is down, has no GID or is not asked for is not used, and the message names it. */
static void test_ports(void **state)
{
	static const struct {
		const char *devices;
		int gid;
		const char *words;
	} cases[] = {
		{NULL, 0, "fake_0, port 1: down"},
		{NULL, 6, "fake_0, port 2: has no GID of the index"},
		{"fake_1", 0, "fake_0, port 2: is not in TUTTI_VERBS_DEVICES"},
		{"fake_0:1, fake_0:2", 6, "fake_0, port 2: has no GID of the index"},
		{"fake_0:2x,fake_0:21", 0, "fake_0, port 2: is not in TUTTI_VERBS_DEVICES"},
	};
	struct fake_config fakes;

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct tutti_endpoint_config config = config_of(0, 2, 50 + i, WORLD_TIMEOUT_MS);
		struct tutti_endpoint *endpoint;
		fake_config_roce(&fakes, seed);
		fakes.device[0].ports = 2;
		fakes.device[0].port[1] = fakes.device[0].port[0];
		fakes.device[0].port[0].state = IBV_PORT_DOWN;
		if (i == 0)
			memset(fakes.device[0].port[1].gids, 0,
			       sizeof fakes.device[0].port[1].gids);
		fake_start(&fakes);
		config.devices = cases[i].devices;
		config.gid = cases[i].gid;
		assert_int_equal(transport_verbs.open(&endpoint, &config), TUTTI_OK);
		assert_int_equal(endpoint->address_bytes, 0);
		EXPECT_WORDS(last_error(), "no RDMA port can be used", cases[i].words);
		transport_verbs.destroy(endpoint);
		assert_true(fake_is_clean());
	}
}

/* Of a RoCE port the GID that routers forward: RoCE v2, IPv4, not of the link alone; or the one
 * that is asked for. */
static void test_gid(void **state)
{
	static const enum verbs_wire wires[] = {VERBS_ROCE_V1, VERBS_ROCE_V2_IPV6, VERBS_ROCE_V1,
						VERBS_ROCE_V2};

	for (int gid = 0; gid <= 4; gid++) {
		struct tutti_endpoint_config config = config_of(0, 2, 60, WORLD_TIMEOUT_MS);
		struct tutti_endpoint *endpoint;
		start();
		config.gid = gid;
		assert_int_equal(transport_verbs.open(&endpoint, &config), TUTTI_OK);
		const struct verbs_port *port = ((struct verbs_endpoint *)endpoint)->ports;
		assert_int_equal(port->gid_index, gid ? gid - 1 : 3);
		assert_int_equal(port->wire, wires[port->gid_index]);
		transport_verbs.destroy(endpoint);
		assert_true(fake_is_clean());
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_open_fails),
		cmocka_unit_test(test_ports),
		cmocka_unit_test(test_gid),
	};

	subject = &verbs;
	seed = test_seed = on_fake_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
