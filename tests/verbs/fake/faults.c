/* What the test has ordered of the fake, and what the fake says of the program. */
#include "tests/verbs/fake/fake.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct fake fake = {.lock = PTHREAD_MUTEX_INITIALIZER,
		    .work = PTHREAD_COND_INITIALIZER,
		    .settled = PTHREAD_COND_INITIALIZER};

void fake_lock(void)
{
	pthread_mutex_lock(&fake.lock);
}

void fake_unlock(void)
{
	pthread_mutex_unlock(&fake.lock);
}

uint32_t fake_random(uint32_t below)
{
	uint64_t z = fake.random += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return (uint32_t)((z ^ (z >> 31)) >> 32) % below;
}

void fake_violation(const char *format, ...)
{
	va_list args;

	fprintf(stderr, "fake verbs (seed %llu): ", (unsigned long long)fake.config.seed);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	fake.counts.violations++;
}

int fake_call_error(enum fake_call call, const struct fake_device *device)
{
	if (device && device->is_gone)
		return EIO;
	if (!fake.calls[call].is_set || fake.calls[call].after-- > 0)
		return 0;
	fake.calls[call].after = 0;
	return fake.calls[call].error;
}

/* Under the lock. */
static void repair(void)
{
	memset(fake.calls, 0, sizeof fake.calls);
	fake.fail.is_set = false;
	fake.refusals = 0;
	fake.holds_sent = fake.holds_received = false;
	fake.moves_left = -1;
	fake.is_settled = false;
	pthread_cond_broadcast(&fake.work);
}

void fake_repair(void)
{
	fake_lock();
	repair();
	fake_unlock();
}

static void name_device(struct fake_device *device, int index)
{
	struct ibv_device *base = &device->base;

	snprintf(base->name, sizeof base->name, "fake_%d", index);
	snprintf(base->dev_name, sizeof base->dev_name, "uverbs%d", index);
	snprintf(base->dev_path, sizeof base->dev_path, "/sys/class/infiniband_verbs/uverbs%d",
		 index);
	snprintf(base->ibdev_path, sizeof base->ibdev_path, "/sys/class/infiniband/fake_%d", index);
}

void fake_start(const struct fake_config *config)
{
	fake_lock();
	if (fake.counts.contexts > 0)
		fake_violation("fake_start while a device is open");
	repair();
	memset(&fake.counts, 0, sizeof fake.counts);
	memset(fake.devices, 0, sizeof fake.devices);
	fake.config = *config;
	fake.random = config->seed;
	fake.numbers = fake_random(1u << 20) + 1;
	fake.keys = fake_random(1u << 20) + 1;
	for (int i = 0; i < config->devices; i++) {
		struct fake_device *device = &fake.devices[i];
		device->config = config->device[i];
		device->index = i;
		device->base.transport_type =
			device->config.has_no_immediate ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
		device->base.node_type =
			device->config.has_no_immediate ? IBV_NODE_RNIC : IBV_NODE_CA;
		name_device(device, i);
	}
	fake_unlock();
}

static void config_one(struct fake_config *config, uint64_t seed, bool is_infiniband)
{
	*config = (struct fake_config){.seed = seed, .delays = 8, .retry_ms = 4, .devices = 1};
	config->device[0].max_inline = 256;
	config->device[0].ports = 1;
	config->device[0].port[0] = (struct fake_port_config){.is_infiniband = is_infiniband,
							      .state = IBV_PORT_ACTIVE,
							      .mtu = IBV_MTU_4096,
							      .width = 2,
							      .speed = 32};
}

void fake_config_roce(struct fake_config *config, uint64_t seed)
{
	static const struct fake_gid gids[] = {
		{IBV_GID_TYPE_ROCE_V1, {0xfe, 0x80, [8] = 2, 0, 0, 0xff, 0xfe, 0, 0, 1}},
		{IBV_GID_TYPE_ROCE_V2, {0xfe, 0x80, [8] = 2, 0, 0, 0xff, 0xfe, 0, 0, 1}},
		{IBV_GID_TYPE_ROCE_V1, {[10] = 0xff, 0xff, 10, 0, 0, 1}},
		{IBV_GID_TYPE_ROCE_V2, {[10] = 0xff, 0xff, 10, 0, 0, 1}},
	};

	config_one(config, seed, false);
	config->device[0].port[0].mtu = IBV_MTU_1024;
	memcpy(config->device[0].port[0].gids, gids, sizeof gids);
}

void fake_config_infiniband(struct fake_config *config, uint64_t seed)
{
	config_one(config, seed, true);
	config->device[0].port[0].lid = 7;
	config->device[0].port[0].gids[0] =
		(struct fake_gid){IBV_GID_TYPE_IB, {0xfe, 0x80, [8] = 2, 0xc9, [15] = 1}};
}

struct fake_counts fake_count(void)
{
	struct fake_counts counts;

	fake_lock();
	counts = fake.counts;
	fake_unlock();
	return counts;
}

bool fake_is_clean(void)
{
	struct fake_counts c = fake_count();
	bool is_closed =
		!c.contexts && !c.domains && !c.regions && !c.channels && !c.queues && !c.pairs;

	if (!is_closed)
		fprintf(stderr,
			"fake verbs: still open are %d contexts, %d protection domains, %d "
			"regions, %d "
			"channels, %d completion queues, %d queue pairs\n",
			c.contexts, c.domains, c.regions, c.channels, c.queues, c.pairs);
	if (c.violations)
		fprintf(stderr, "fake verbs: %ld violations\n", c.violations);
	return is_closed && c.violations == 0;
}

void fake_fail_call(enum fake_call call, long after, int error)
{
	fake_lock();
	fake.calls[call].is_set = true;
	fake.calls[call].after = after;
	fake.calls[call].error = error;
	fake_unlock();
}

void fake_fail_work(enum ibv_wr_opcode opcode, long after, enum ibv_wc_status status)
{
	fake_lock();
	fake.fail.is_set = true;
	fake.fail.opcode = opcode;
	fake.fail.after = after;
	fake.fail.status = status;
	fake_unlock();
}

void fake_refuse_receives(long messages)
{
	fake_lock();
	fake.refusals = messages;
	fake_unlock();
}

void fake_set_port(int device, int port, enum ibv_port_state state)
{
	fake_lock();
	fake.devices[device].config.port[port - 1].state = state;
	pthread_cond_broadcast(&fake.work);
	fake_unlock();
}

/* Under the lock. */
static void break_pairs(const struct fake_device *device)
{
	for (struct fake_pair *pair = fake.pairs; pair; pair = pair->next)
		if (fake_device_of(pair->base.context) == device &&
		    (device->is_gone || pair->base.state == IBV_QPS_RTS))
			fake_pair_break(pair);
}

void fake_remove_device(int device)
{
	fake_lock();
	fake.devices[device].is_gone = true;
	break_pairs(&fake.devices[device]);
	fake_unlock();
}

void fake_break_pairs(int device)
{
	fake_lock();
	break_pairs(&fake.devices[device]);
	fake_unlock();
}

static void hold(bool *what, bool is_held)
{
	fake_lock();
	*what = is_held;
	fake.is_settled = false;
	pthread_cond_broadcast(&fake.work);
	fake_unlock();
}

void fake_move_only(long requests)
{
	fake_lock();
	fake.moves_left = requests;
	fake.is_settled = false;
	pthread_cond_broadcast(&fake.work);
	fake_unlock();
}

void fake_hold_work(bool is_held)
{
	fake_move_only(is_held ? 0 : -1);
}

void fake_hold_sent(bool is_held)
{
	hold(&fake.holds_sent, is_held);
}

void fake_hold_received(bool is_held)
{
	hold(&fake.holds_received, is_held);
}

void fake_settle(void)
{
	fake_lock();
	while (fake.has_thread && !fake.is_settled)
		pthread_cond_wait(&fake.settled, &fake.lock);
	fake_unlock();
}
