/* A description of all RDMA ports. It asks the functions that choose ports and GIDs. */
#include "transport/verbs/listing.h"

#include "core/status.h"
#include "transport/verbs/verbs.h"

#include <errno.h>
#include <linux/capability.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* RLIMIT_MEMLOCK does not bind a process with this right. */
static bool may_lock_all(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {{0}};

	return syscall(SYS_capget, &header, sets) == 0 &&
	       (sets[0].effective & 1u << CAP_IPC_LOCK) != 0;
}

static void list_limit(struct verbs_listing *listing)
{
	struct rlimit limit = {.rlim_cur = RLIM_INFINITY};

	getrlimit(RLIMIT_MEMLOCK, &limit);
	listing->lock_bytes =
		limit.rlim_cur == RLIM_INFINITY || may_lock_all() ? UINT64_MAX : limit.rlim_cur;
	listing->lock_advice = listing->lock_bytes < VERBS_BYTES ? VERBS_RAISE_MEMLOCK : NULL;
}

static void explain_gid(struct verbs_listed_gid *gid, const struct ibv_gid_entry *entry, int wanted)
{
	if (wanted >= 0)
		snprintf(gid->why, sizeof gid->why, "TUTTI_VERBS_GID=%d", wanted);
	else
		verbs_gid_explain(entry, gid->why);
}

static tutti_status list_gids(struct verbs_listed_port *to, const struct verbs_port *port,
			      int entries, int wanted)
{
	to->gids = calloc((size_t)entries + 1, sizeof *to->gids);
	if (!to->gids)
		return fail(TUTTI_ERR_MEMORY, "no memory for the GIDs of %s", to->device);
	for (int i = 0; i < entries; i++) {
		struct verbs_listed_gid *gid = &to->gids[to->gid_count];
		struct ibv_gid_entry entry;
		if (port->device->library->gid_query(port->device->context, port->number,
						     (uint32_t)i, &entry, 0, sizeof entry) != 0)
			continue;
		to->gid_count++;
		gid->index = i;
		gid->type = entry.gid_type == IBV_GID_TYPE_IB        ? "InfiniBand"
			    : entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? "RoCE v2"
								     : "RoCE v1";
		gid->is_chosen = !to->lacks[0] && i == port->gid_index;
		verbs_gid_print(&entry.gid, gid->address);
		if (entry.ndev_ifindex == 0 || !if_indextoname(entry.ndev_ifindex, gid->interface))
			gid->interface[0] = '\0';
		if (gid->is_chosen)
			explain_gid(gid, &entry, wanted);
	}
	return TUTTI_OK;
}

static tutti_status list_port(struct verbs_listed_port *to, struct verbs_port *port, int gid_index,
			      const char *devices)
{
	const char *lacks = verbs_port_check(port, gid_index, devices);
	struct ibv_port_attr attr;

	to->number = port->number;
	snprintf(to->lacks, sizeof to->lacks, "%s", lacks ? lacks : "");
	if (verbs_port_query(port->device->library, port->device->context, port->number, &attr))
		return TUTTI_OK;
	snprintf(to->state, sizeof to->state, "%s",
		 port->device->library->port_state_str(attr.state));
	to->link = attr.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand";
	to->gigabits = verbs_link_gigabits(&attr);
	to->mtu = 128 << attr.active_mtu;
	to->lid = attr.lid;
	return list_gids(to, port, attr.gid_tbl_len, gid_index);
}

static struct verbs_listed_port *add_port(struct verbs_listing *listing, const char *device)
{
	size_t count = (size_t)listing->count;
	struct verbs_listed_port *ports = realloc(listing->ports, (count + 1) * sizeof *ports);

	if (!ports) {
		fail(TUTTI_ERR_MEMORY, "no memory for %zu RDMA ports", count + 1);
		return NULL;
	}
	listing->ports = ports;
	ports[count] = (struct verbs_listed_port){.link = "unknown"};
	snprintf(ports[count].device, sizeof ports[count].device, "%s", device);
	return &ports[listing->count++];
}

static tutti_status list_device(struct verbs_listing *listing, const struct verbs_library *library,
				struct ibv_device *found, int gid_index, const char *devices)
{
	struct verbs_device *device = verbs_device_open(library, found);
	const char *why = device ? NULL : strerror(errno), *name = library->get_device_name(found);
	struct verbs_port used[VERBS_PORTS];
	tutti_status status = TUTTI_OK;
	int count;

	if (!device) {
		struct verbs_listed_port *port = add_port(listing, name);
		if (port)
			snprintf(port->lacks, sizeof port->lacks, "cannot be opened: %s", why);
		return port ? TUTTI_OK : TUTTI_ERR_MEMORY;
	}
	verbs_ports_open(used, &count, gid_index, devices);
	for (int p = 1; p <= device->limits.phys_port_cnt && status == TUTTI_OK; p++) {
		struct verbs_port port = {.device = device, .number = (uint8_t)p};
		struct verbs_listed_port *to = add_port(listing, name);
		if (!to) {
			status = TUTTI_ERR_MEMORY;
			break;
		}
		to->has_maps = verbs_device_maps(device);
		for (int i = 0; i < count; i++)
			to->is_used |= used[i].device == device && used[i].number == p;
		status = list_port(to, &port, gid_index, devices);
	}
	verbs_ports_close(used, count);
	verbs_device_close(device);
	return status;
}

tutti_status verbs_listing_make(struct verbs_listing *listing, int gid_index, const char *devices)
{
	const struct verbs_library *library;
	struct ibv_device **list;
	tutti_status status = TUTTI_OK;
	int count = 0;

	*listing = (struct verbs_listing){0};
	list_limit(listing);
	TRY(verbs_library(&library));
	list = library->get_device_list(&count);
	if (!list)
		return fail_errno("verbs: the RDMA devices cannot be listed (ibv_get_device_list)");
	for (int i = 0; i < count && status == TUTTI_OK; i++)
		status = list_device(listing, library, list[i], gid_index, devices);
	library->free_device_list(list);
	return status;
}

void verbs_listing_free(struct verbs_listing *listing)
{
	for (int i = 0; i < listing->count; i++)
		free(listing->ports[i].gids);
	free(listing->ports);
	*listing = (struct verbs_listing){0};
}
