/* Devices of the fake: listing, opening, ports, GIDs, and libibverbs' words. */
#include "tests/verbs/fake/fake.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#undef ibv_query_port

struct ibv_device **ibv_get_device_list(int *count)
{
	struct ibv_device **list = calloc(FAKE_DEVICES + 1, sizeof *list);
	int found = 0;

	if (!list)
		return NULL;
	fake_lock();
	int error = fake_call_error(FAKE_GET_DEVICE_LIST, NULL);
	for (int i = 0; i < fake.config.devices; i++)
		if (!fake.devices[i].is_gone)
			list[found++] = &fake.devices[i].base;
	fake_unlock();
	if (error != 0) {
		free(list);
		errno = error;
		return NULL;
	}
	if (count)
		*count = found;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

/* Names of ports and widths and lanes lie in sysfs for those who look there; not so here. */
static int query_port(struct ibv_context *context, uint8_t number, struct ibv_port_attr *attr,
		      size_t bytes)
{
	struct fake_device *device = fake_device_of(context);
	struct ibv_port_attr all = {0};

	if (number < 1 || number > device->config.ports)
		return EINVAL;
	fake_lock();
	const struct fake_port_config *port = &device->config.port[number - 1];
	int error = fake_call_error(FAKE_QUERY_PORT, device);
	all.state = port->state;
	all.max_mtu = IBV_MTU_4096;
	all.active_mtu = port->mtu;
	all.gid_tbl_len = FAKE_GIDS;
	all.max_msg_sz = 1u << 30;
	all.pkey_tbl_len = 1;
	all.lid = port->lid;
	all.active_width = port->width;
	all.active_speed = port->speed;
	all.link_layer = port->is_infiniband ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET;
	fake_unlock();
	if (error == 0)
		memcpy(attr, &all, bytes < sizeof all ? bytes : sizeof all);
	return error;
}

int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	/* The old form ends in front of port_cap_flags2. */
	return query_port(context, port, (struct ibv_port_attr *)attr,
			  offsetof(struct ibv_port_attr, port_cap_flags2));
}

static void fill(struct fake_context *context, struct fake_device *device)
{
	struct ibv_context *base = &context->verbs.context;

	context->device = device;
	context->verbs.sz = sizeof context->verbs;
	context->verbs.query_port = device->config.is_old ? NULL : query_port;
	base->abi_compat = __VERBS_ABI_IS_EXTENDED;
	base->device = &device->base;
	base->num_comp_vectors = 1;
	base->ops.poll_cq = fake_poll_cq;
	base->ops.req_notify_cq = fake_req_notify_cq;
	base->ops.post_send = fake_post_send;
	base->ops.post_recv = fake_post_recv;
}

static struct ibv_context *refuse(struct fake_context *context, int error)
{
	if (context && context->verbs.context.cmd_fd >= 0)
		close(context->verbs.context.cmd_fd);
	if (context && context->verbs.context.async_fd >= 0)
		close(context->verbs.context.async_fd);
	free(context);
	errno = error;
	return NULL;
}

struct ibv_context *ibv_open_device(struct ibv_device *base)
{
	struct fake_device *device = (struct fake_device *)base;
	struct fake_context *context = calloc(1, sizeof *context);

	if (!context)
		return NULL;
	fill(context, device);
	context->verbs.context.async_fd = -1;
	context->verbs.context.cmd_fd = eventfd(0, EFD_CLOEXEC);
	if (context->verbs.context.cmd_fd < 0)
		return refuse(context, errno);
	context->verbs.context.async_fd = eventfd(0, EFD_CLOEXEC);
	if (context->verbs.context.async_fd < 0)
		return refuse(context, errno);
	fake_lock();
	int error = fake_call_error(FAKE_OPEN_DEVICE, device);
	if (error == 0 && !fake.has_thread && !fake_wire_begin())
		error = EAGAIN;
	fake.counts.contexts += error == 0;
	fake_unlock();
	return error == 0 ? &context->verbs.context : refuse(context, error);
}

int ibv_close_device(struct ibv_context *base)
{
	struct fake_context *context = fake_context_of(base);

	fake_lock();
	if (context->domains || context->regions || context->channels || context->queues ||
	    context->pairs)
		fake_violation("%s is closed with %d protection domains, %d regions, %d channels, "
			       "%d completion queues and %d queue pairs open",
			       base->device->name, context->domains, context->regions,
			       context->channels, context->queues, context->pairs);
	bool is_last = --fake.counts.contexts == 0;
	fake_unlock();
	if (is_last)
		fake_wire_end();
	close(base->cmd_fd);
	close(base->async_fd);
	free(context);
	return 0;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	struct fake_device *device = fake_device_of(context);

	memset(attr, 0, sizeof *attr);
	strcpy(attr->fw_ver, "fake");
	attr->max_mr_size = UINT64_MAX;
	attr->max_qp = 1 << 16;
	attr->max_qp_wr = FAKE_WORK_MOST;
	attr->max_sge = FAKE_SGES;
	attr->max_cq = 1 << 16;
	attr->max_cqe = FAKE_QUEUE_MOST;
	attr->max_mr = 1 << 16;
	attr->max_pd = 1 << 10;
	attr->max_qp_rd_atom = 1;
	attr->max_pkeys = 1;
	attr->phys_port_cnt = (uint8_t)device->config.ports;
	fake_lock();
	int error = fake_call_error(FAKE_QUERY_DEVICE, device);
	fake_unlock();
	return error;
}

const struct fake_gid *fake_gid_at(const struct fake_device *device, int port, unsigned index)
{
	static const uint8_t none[16];
	const struct fake_gid *gid;

	if (port < 1 || port > device->config.ports || index >= FAKE_GIDS)
		return NULL;
	gid = &device->config.port[port - 1].gids[index];
	return memcmp(gid->raw, none, sizeof none) == 0 ? NULL : gid;
}

bool fake_port_is_active(const struct fake_device *device, int port)
{
	return !device->is_gone && device->config.port[port - 1].state == IBV_PORT_ACTIVE;
}

/* An empty entry is ENODATA, as the kernel says. */
int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
		      struct ibv_gid_entry *entry, uint32_t flags, size_t bytes)
{
	struct fake_device *device = fake_device_of(context);
	struct ibv_gid_entry all = {.gid_index = index, .port_num = port};
	int error = 0;

	if (flags != 0 || port < 1 || port > (uint32_t)device->config.ports || index >= FAKE_GIDS)
		return EINVAL;
	fake_lock();
	const struct fake_gid *gid = fake_gid_at(device, (int)port, index);
	if (device->is_gone)
		error = EIO;
	else if (!gid)
		error = ENODATA;
	else {
		all.gid_type = gid->type;
		memcpy(all.gid.raw, gid->raw, sizeof gid->raw);
	}
	fake_unlock();
	if (error == 0)
		memcpy(entry, &all, bytes < sizeof all ? bytes : sizeof all);
	return error;
}

int ibv_fork_init(void)
{
	return 0;
}

const char *ibv_wc_status_str(enum ibv_wc_status status)
{
	static const char *const words[] = {
		[IBV_WC_SUCCESS] = "success",
		[IBV_WC_LOC_LEN_ERR] = "local length error",
		[IBV_WC_LOC_QP_OP_ERR] = "local QP operation error",
		[IBV_WC_LOC_EEC_OP_ERR] = "local EE context operation error",
		[IBV_WC_LOC_PROT_ERR] = "local protection error",
		[IBV_WC_WR_FLUSH_ERR] = "Work Request Flushed Error",
		[IBV_WC_MW_BIND_ERR] = "memory management operation error",
		[IBV_WC_BAD_RESP_ERR] = "bad response error",
		[IBV_WC_LOC_ACCESS_ERR] = "local access error",
		[IBV_WC_REM_INV_REQ_ERR] = "remote invalid request error",
		[IBV_WC_REM_ACCESS_ERR] = "remote access error",
		[IBV_WC_REM_OP_ERR] = "remote operation error",
		[IBV_WC_RETRY_EXC_ERR] = "transport retry counter exceeded",
		[IBV_WC_RNR_RETRY_EXC_ERR] = "RNR retry counter exceeded",
		[IBV_WC_REM_ABORT_ERR] = "aborted error",
		[IBV_WC_FATAL_ERR] = "fatal error",
		[IBV_WC_RESP_TIMEOUT_ERR] = "response timeout error",
		[IBV_WC_GENERAL_ERR] = "general error",
	};

	return (size_t)status < sizeof words / sizeof *words && words[status] ? words[status]
									      : "unknown";
}

const char *ibv_port_state_str(enum ibv_port_state state)
{
	static const char *const words[] = {
		"no state change (NOP)", "down", "init", "armed", "active", "active defer"};

	return (size_t)state < sizeof words / sizeof *words ? words[state] : "invalid state";
}
