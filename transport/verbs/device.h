/* RDMA devices of this machine: their ports, and how peers reach them. A device is opened once in a
 * process, and memory is registered with it for all communicators. */
#ifndef TRANSPORT_VERBS_DEVICE_H
#define TRANSPORT_VERBS_DEVICE_H

#include "transport/verbs/library.h"
#include "transport/verbs/registered.h"

#include <stdbool.h>

#define VERBS_RAISE_MEMLOCK                                                                        \
	"raise the limit (ulimit -l unlimited; memlock in /etc/security/limits.conf; "             \
	"LimitMEMLOCK=infinity of a systemd unit; docker run --ulimit memlock=-1)"

#define VERBS_PORTS 4 /* of all devices that one endpoint uses */

/* How packets are addressed. Ports of different kinds do not reach each other: the kernel refuses a
 * path from an IPv4 address to one of IPv6. */
enum verbs_wire { VERBS_INFINIBAND = 1, VERBS_ROCE_V1, VERBS_ROCE_V2, VERBS_ROCE_V2_IPV6 };

struct verbs_device {
	const struct verbs_library *library;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_device_attr limits;
	bool has_immediate; /* RDMA writes may carry immediate data */
	struct verbs_registered registered;
	int users;
	struct verbs_device *next;
};

struct verbs_port {
	struct verbs_device *device;
	uint8_t number;
	enum verbs_wire wire;
	enum ibv_mtu mtu;
	uint16_t lid;
	uint8_t gid_index;
	union ibv_gid gid;
	uint32_t mbs; /* of its link, MB/s */
};

/* The ports that carry messages now, the fastest first. gid_index: -1, or of all ports. wanted:
 * "mlx5_0,mlx5_1:2", or NULL for all. None is UNSUPPORTED, and the message says what each lacks. */
tutti_status verbs_ports_open(struct verbs_port ports[VERBS_PORTS], int *count, int gid_index,
			      const char *wanted);
void verbs_ports_close(struct verbs_port *ports, int count);

/* For those that describe devices. NULL: errno says why. */
struct verbs_device *verbs_device_open(const struct verbs_library *library,
				       struct ibv_device *found);
/* One more user, who closes it, too. */
void verbs_device_hold(struct verbs_device *device);
void verbs_device_close(struct verbs_device *device);
/* Fills in a port of this device and number. NULL: it carries messages; else what it lacks. */
const char *verbs_port_check(struct verbs_port *port, int gid_index, const char *wanted);
/* mapped.c: whether its driver registers dma-bufs, such as those of GPUs; if not, errno is why. */
bool verbs_device_maps(const struct verbs_device *device);
/* In a second; 0: unknown. */
double verbs_link_gigabits(const struct ibv_port_attr *attr);
/* The properties by which a GID is chosen: "RoCE v2, IPv4, not link-local". */
void verbs_gid_explain(const struct ibv_gid_entry *entry, char text[80]);

/* "mlx5_0, port 1" */
void verbs_port_name(const struct verbs_port *port, char text[80]);
/* "down", "active" and so on, as it is now. */
const char *verbs_port_state(const struct verbs_port *port, bool *is_active);

/* The GID as text: an IPv4 address where it stands for one. */
void verbs_gid_print(const union ibv_gid *gid, char text[64]);

/* Where why is ENOMEM: how much this process may lock, and how to raise it; "" where there is no
 * limit. Queues are locked, too. */
#define VERBS_MEMLOCK_BYTES 240
const char *verbs_memlock_text(int why, char text[VERBS_MEMLOCK_BYTES]);

/* Memory that the device may use; access as of ibv_reg_mr. MEMORY says how to raise the limit. */
tutti_status verbs_register(struct ibv_mr **mr, const struct verbs_device *device, void *at,
			    size_t bytes, int access);

#endif
