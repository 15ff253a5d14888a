/* Ports of RDMA devices, and their GIDs: which can be used, and which are taken; a description of
 * all of them. */
#include "transport/verbs/port.h"

#include "core/status.h"
#include "transport/verbs/device.h"
#include "transport/verbs/verbs.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <linux/capability.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DEVICES_FOLDER "/sys/class/infiniband"

static bool port_is_ipv4(const union ibv_gid *gid)
{
	static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

	return memcmp(gid->raw, mapped, sizeof mapped) == 0;
}

static bool port_is_link_local(const union ibv_gid *gid)
{
	if (port_is_ipv4(gid))
		return gid->raw[12] == 169 && gid->raw[13] == 254;
	return gid->raw[0] == 0xfe && (gid->raw[1] & 0xc0) == 0x80;
}

/* The GID as text: an IPv4 address where it stands for one. */
static void verbs_gid_print(const union ibv_gid *gid, char text[64])
{
	if (port_is_ipv4(gid))
		inet_ntop(AF_INET, gid->raw + 12, text, 64);
	else
		inet_ntop(AF_INET6, gid->raw, text, 64);
}

/* Of a RoCE port: the higher the better, 0: none. Routers forward RoCE v2; IPv4 is what most
 * networks for it have; an address of the link alone reaches no other link. */
static int port_gid_rank(const struct ibv_gid_entry *entry)
{
	int is_v2 = entry->gid_type == IBV_GID_TYPE_ROCE_V2;

	return 1 + port_is_ipv4(&entry->gid) + 2 * !port_is_link_local(&entry->gid) + 4 * is_v2;
}

/* The properties by which a GID is chosen: "RoCE v2, IPv4, not link-local". */
static void verbs_gid_explain(const struct ibv_gid_entry *entry, char text[80])
{
	if (entry->gid_type == IBV_GID_TYPE_IB)
		snprintf(text, 80, "InfiniBand");
	else
		snprintf(text, 80, "RoCE %s%s, %s",
			 entry->gid_type == IBV_GID_TYPE_ROCE_V2 ? "v2" : "v1, as there is no v2",
			 port_is_ipv4(&entry->gid) ? ", IPv4" : "",
			 port_is_link_local(&entry->gid) ? "link-local" : "not link-local");
}

static enum verbs_wire port_wire_of(const struct ibv_gid_entry *entry)
{
	if (entry->gid_type == IBV_GID_TYPE_IB)
		return VERBS_INFINIBAND;
	if (entry->gid_type != IBV_GID_TYPE_ROCE_V2)
		return VERBS_ROCE_V1;
	return port_is_ipv4(&entry->gid) ? VERBS_ROCE_V2 : VERBS_ROCE_V2_IPV6;
}

static bool port_choose_gid(struct verbs_port *port, int entries, int wanted)
{
	const struct verbs_library *library = port->device->library;
	int best = 0;

	for (int i = 0; i < entries && i <= UINT8_MAX; i++) {
		struct ibv_gid_entry entry;
		if ((wanted >= 0 && i != wanted) ||
		    library->gid_query(port->device->context, port->number, (uint32_t)i, &entry, 0,
				       sizeof entry) != 0 ||
		    port_gid_rank(&entry) <= best)
			continue;
		best = port_gid_rank(&entry);
		port->gid = entry.gid;
		port->gid_index = (uint8_t)i;
		port->wire = port_wire_of(&entry);
	}
	return best > 0;
}

/* Lanes times the speed of one: the header has both as codes. 0: unknown. */
static uint32_t port_link_megabits(const struct ibv_port_attr *attr)
{
	static const struct {
		uint8_t code;
		uint32_t megabits;
	} speeds[] = {{1, 2500},   {2, 5000},   {4, 10000},  {8, 10000},
		      {16, 14000}, {32, 25000}, {64, 50000}, {128, 100000}};
	uint32_t lanes = attr->active_width == 1   ? 1
			 : attr->active_width == 2 ? 4
			 : attr->active_width == 4 ? 8
			 : attr->active_width == 8 ? 12
						   : 2;

	for (size_t i = 0; i < sizeof speeds / sizeof *speeds; i++)
		if (speeds[i].code == attr->active_speed)
			return lanes * speeds[i].megabits;
	return 0;
}

/* In a second; 0: unknown. */
static double verbs_link_gigabits(const struct ibv_port_attr *attr)
{
	return port_link_megabits(attr) / 1e3;
}

/* "mlx5_0, mlx5_1:2" has all ports of mlx5_0, and port 2 of mlx5_1. */
static bool verbs_is_wanted(const char *wanted, const char *device, int port)
{
	char name[80];

	snprintf(name, sizeof name, "%s:%d", device, port);
	for (const char *p = wanted; p && *p; p += strcspn(p, ","), p += *p == ',') {
		p += strspn(p, " ");
		size_t n = strcspn(p, ", ");
		if (strncmp(p, name, n) == 0 && (name[n] == ':' || name[n] == '\0'))
			return true;
	}
	return !wanted || !wanted[0];
}

/* Fills in a port of this device and number. NULL: it carries messages; else what it lacks. */
static const char *verbs_port_check(struct verbs_port *port, int gid_index, const char *wanted)
{
	const struct verbs_library *library = port->device->library;
	const char *name = library->get_device_name(port->device->context->device);
	struct ibv_port_attr attr;

	if (!verbs_is_wanted(wanted, name, port->number))
		return "is not in TUTTI_VERBS_DEVICES";
	if (verbs_port_query(library, port->device->context, port->number, &attr) != 0)
		return "cannot be queried";
	if (attr.state != IBV_PORT_ACTIVE)
		return library->port_state_str(attr.state);
	if (!port_choose_gid(port, attr.gid_tbl_len, gid_index))
		return gid_index < 0 ? "has no GID: its network interface needs an address"
				     : "has no GID of the index that TUTTI_VERBS_GID names";
	port->lid = attr.lid;
	port->mtu = attr.active_mtu;
	port->mbs = port_link_megabits(&attr) / 8;
	return NULL;
}

/* The fastest first, and in the order of their names where they are alike. */
static void verbs_insert(struct verbs_port ports[VERBS_PORTS], int *count,
			 const struct verbs_port *port)
{
	int at = 0;

	while (at < *count && ports[at].mbs >= port->mbs)
		at++;
	if (at == VERBS_PORTS)
		return;
	if (*count == VERBS_PORTS)
		verbs_device_close(ports[--*count].device);
	memmove(&ports[at + 1], &ports[at], (size_t)(*count - at) * sizeof *ports);
	ports[at] = *port;
	verbs_device_hold(port->device);
	(*count)++;
}

/* Of all ports that lack something. */
struct complaint {
	char text[400];
};

static void verbs_complain(struct complaint *complaint, const char *device, int port,
			   const char *what)
{
	size_t used = strlen(complaint->text);

	snprintf(complaint->text + used, sizeof complaint->text - used, "%s%s", used ? "; " : "",
		 device);
	used = strlen(complaint->text);
	if (port)
		snprintf(complaint->text + used, sizeof complaint->text - used, ", port %d", port);
	used = strlen(complaint->text);
	snprintf(complaint->text + used, sizeof complaint->text - used, ": %s", what);
}

/* A caller's choice. */
struct wish {
	int gid_index;
	const char *devices;
};

static void port_open_device_ports(struct verbs_port ports[VERBS_PORTS], int *count,
				   const struct wish *wish, const struct verbs_library *library,
				   struct ibv_device *found, struct complaint *complaint)
{
	const char *name = library->get_device_name(found);
	struct verbs_device *device = verbs_device_open(library, found);

	if (!device) {
		verbs_complain(complaint, name, 0, strerror(errno));
		return;
	}
	for (uint8_t p = 1; p <= device->limits.phys_port_cnt; p++) {
		struct verbs_port port = {.device = device, .number = p};
		const char *lacks = verbs_port_check(&port, wish->gid_index, wish->devices);
		if (lacks)
			verbs_complain(complaint, name, p, lacks);
		else
			verbs_insert(ports, count, &port);
	}
	verbs_device_close(device);
}

static bool port_has_devices(void)
{
	DIR *folder = opendir(DEVICES_FOLDER);
	bool is_any = false;

	/* The folder cannot be read: the library then reports why. */
	if (!folder && errno != ENOENT)
		return true;
	for (struct dirent *e; folder && !is_any && (e = readdir(folder));)
		is_any = e->d_name[0] != '.';
	if (folder)
		closedir(folder);
	return is_any;
}

/* A library that is loaded may have others than the kernel's. */
static bool port_may_have_devices(void)
{
	return port_has_devices() || verbs_library_is_loaded();
}

tutti_status verbs_ports_open(struct verbs_port ports[VERBS_PORTS], int *count, int gid_index,
			      const char *wanted)
{
	const struct wish wish = {gid_index, wanted};
	const struct verbs_library *library;
	struct complaint complaint = {""};
	struct ibv_device **list;
	int devices_here = 0;

	*count = 0;
	if (!port_may_have_devices())
		return fail(TUTTI_ERR_UNSUPPORTED, "verbs: this machine has no RDMA device");
	TRY(verbs_library(&library));
	list = library->get_device_list(&devices_here);
	if (!list)
		return fail_errno("verbs: the RDMA devices cannot be listed (ibv_get_device_list)");
	for (int i = 0; i < devices_here; i++)
		port_open_device_ports(ports, count, &wish, library, list[i], &complaint);
	library->free_device_list(list);
	if (*count == 0)
		return fail(TUTTI_ERR_UNSUPPORTED, "verbs: no RDMA port can be used: %s",
			    devices_here ? complaint.text
					 : "the provider of this machine's device is not installed "
					   "(Debian: ibverbs-providers)");
	return TUTTI_OK;
}

void verbs_ports_close(struct verbs_port *ports, int count)
{
	for (int i = 0; i < count; i++)
		verbs_device_close(ports[i].device);
}

void verbs_port_name(const struct verbs_port *port, char text[80])
{
	snprintf(text, 80, "%s, port %d",
		 port->device->library->get_device_name(port->device->context->device),
		 port->number);
}

const char *verbs_port_state(const struct verbs_port *port, bool *is_active)
{
	const struct verbs_library *library = port->device->library;
	struct ibv_port_attr attr;

	*is_active = false;
	if (verbs_port_query(library, port->device->context, port->number, &attr) != 0)
		return "gone";
	*is_active = attr.state == IBV_PORT_ACTIVE;
	return library->port_state_str(attr.state);
}

/* RLIMIT_MEMLOCK does not bind a process with this right. */
static bool port_may_lock_all(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {{0}};

	return syscall(SYS_capget, &header, sets) == 0 &&
	       (sets[0].effective & 1u << CAP_IPC_LOCK) != 0;
}

static void port_list_limit(struct verbs_listing *listing)
{
	struct rlimit limit = {.rlim_cur = RLIM_INFINITY};

	getrlimit(RLIMIT_MEMLOCK, &limit);
	listing->lock_bytes = limit.rlim_cur == RLIM_INFINITY || port_may_lock_all()
				      ? UINT64_MAX
				      : limit.rlim_cur;
	listing->lock_advice = listing->lock_bytes < VERBS_BYTES ? VERBS_RAISE_MEMLOCK : NULL;
}

static void port_explain_gid(struct verbs_listed_gid *gid, const struct ibv_gid_entry *entry,
			     int wanted)
{
	if (wanted >= 0)
		snprintf(gid->why, sizeof gid->why, "TUTTI_VERBS_GID=%d", wanted);
	else
		verbs_gid_explain(entry, gid->why);
}

static tutti_status port_list_gids(struct verbs_listed_port *to, const struct verbs_port *port,
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
			port_explain_gid(gid, &entry, wanted);
	}
	return TUTTI_OK;
}

static tutti_status port_list_port(struct verbs_listed_port *to, struct verbs_port *port,
				   int gid_index, const char *devices)
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
	return port_list_gids(to, port, attr.gid_tbl_len, gid_index);
}

static struct verbs_listed_port *port_add_port(struct verbs_listing *listing, const char *device)
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

static tutti_status port_list_device(struct verbs_listing *listing,
				     const struct verbs_library *library, struct ibv_device *found,
				     int gid_index, const char *devices)
{
	struct verbs_device *device = verbs_device_open(library, found);
	const char *why = device ? NULL : strerror(errno), *name = library->get_device_name(found);
	struct verbs_port used[VERBS_PORTS];
	tutti_status status = TUTTI_OK;
	int count;

	if (!device) {
		struct verbs_listed_port *port = port_add_port(listing, name);
		if (port)
			snprintf(port->lacks, sizeof port->lacks, "cannot be opened: %s", why);
		return port ? TUTTI_OK : TUTTI_ERR_MEMORY;
	}
	verbs_ports_open(used, &count, gid_index, devices);
	for (int p = 1; p <= device->limits.phys_port_cnt && status == TUTTI_OK; p++) {
		struct verbs_port port = {.device = device, .number = (uint8_t)p};
		struct verbs_listed_port *to = port_add_port(listing, name);
		if (!to) {
			status = TUTTI_ERR_MEMORY;
			break;
		}
		to->has_maps = verbs_device_maps(device);
		for (int i = 0; i < count; i++)
			to->is_used |= used[i].device == device && used[i].number == p;
		status = port_list_port(to, &port, gid_index, devices);
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
	port_list_limit(listing);
	TRY(verbs_library(&library));
	list = library->get_device_list(&count);
	if (!list)
		return fail_errno("verbs: the RDMA devices cannot be listed (ibv_get_device_list)");
	for (int i = 0; i < count && status == TUTTI_OK; i++)
		status = port_list_device(listing, library, list[i], gid_index, devices);
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
