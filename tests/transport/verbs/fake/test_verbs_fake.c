/* Would break: verbs where no RDMA device is (the fake's RoCE port), with deliveries and
 * completions that are late and out of order. */
#include "tests/transport/verbs/fake/on_fake.h"

int main(void)
{
	struct fake_config config;

	fake_config_roce(&config, on_fake_seed());
	return on_fake_conformance(&config);
}
