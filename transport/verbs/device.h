/* RDMA devices of this machine: their ports, and how peers reach them. A device is opened once in a
 * process, and memory is registered with it for all communicators. */
#ifndef TRANSPORT_VERBS_DEVICE_H
#define TRANSPORT_VERBS_DEVICE_H

#include "transport/verbs/memory.h"

#include <stdbool.h>
#include <tutti/tutti.h>
#include <infiniband/verbs.h>

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
	struct known_memory_user registers;
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
/* memory.c: whether its driver registers dma-bufs, such as those of GPUs; if not, errno is why. */
bool verbs_device_maps(const struct verbs_device *device);

/* "mlx5_0, port 1" */
void verbs_port_name(const struct verbs_port *port, char text[80]);
/* "down", "active" and so on, as it is now. */
const char *verbs_port_state(const struct verbs_port *port, bool *is_active);

/* Where why is ENOMEM: how much this process may lock, and how to raise it; "" where there is no
 * limit. Queues are locked, too. */
#define VERBS_MEMLOCK_BYTES 240
const char *verbs_memlock_text(int why, char text[VERBS_MEMLOCK_BYTES]);

/* Memory that the device may use; access as of ibv_reg_mr. MEMORY says how to raise the limit. */
tutti_status verbs_register(struct ibv_mr **mr, const struct verbs_device *device, void *at,
			    size_t bytes, int access);

/* libibverbs, loaded at run time, so that one binary runs with and without it: its functions by
 * name. What the header has inline (posting, polling) goes through the device's own table, and is
 * called as it is.
 *
 *      result                     name                 parameters */
#define VERBS_FUNCTIONS(X)                                                                         \
	X(struct ibv_device **, get_device_list, (int *count))                                     \
	X(void, free_device_list, (struct ibv_device **list))                                      \
	X(const char *, get_device_name, (struct ibv_device *device))                              \
	X(struct ibv_context *, open_device, (struct ibv_device *device))                          \
	X(int, close_device, (struct ibv_context *context))                                        \
	X(int, query_device, (struct ibv_context *context, struct ibv_device_attr *attr))          \
	X(struct ibv_pd *, alloc_pd, (struct ibv_context *context))                                \
	X(int, dealloc_pd, (struct ibv_pd *pd))                                                    \
	X(struct ibv_mr *, reg_mr, (struct ibv_pd *pd, void *at, size_t bytes, int access))        \
	X(struct ibv_mr *, reg_dmabuf_mr,                                                          \
	  (struct ibv_pd *pd, uint64_t offset, size_t bytes, uint64_t iova, int fd, int access))   \
	X(int, dereg_mr, (struct ibv_mr *mr))                                                      \
	X(struct ibv_comp_channel *, create_comp_channel, (struct ibv_context *context))           \
	X(int, destroy_comp_channel, (struct ibv_comp_channel *channel))                           \
	X(struct ibv_cq *, create_cq,                                                              \
	  (struct ibv_context *context, int cqe, void *cq_context,                                 \
	   struct ibv_comp_channel *channel, int vector))                                          \
	X(int, destroy_cq, (struct ibv_cq *cq))                                                    \
	X(int, get_cq_event,                                                                       \
	  (struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context))               \
	X(void, ack_cq_events, (struct ibv_cq *cq, unsigned count))                                \
	X(struct ibv_qp *, create_qp, (struct ibv_pd *pd, struct ibv_qp_init_attr *attr))          \
	X(int, modify_qp, (struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask))                 \
	X(int, destroy_qp, (struct ibv_qp *qp))                                                    \
	X(int, fork_init, (void))                                                                  \
	X(const char *, wc_status_str, (enum ibv_wc_status status))                                \
	X(const char *, port_state_str, (enum ibv_port_state state))

struct verbs_library {
#define FUNCTION(result, name, parameters) result(*name) parameters;
	VERBS_FUNCTIONS(FUNCTION)
#undef FUNCTION
	/* Names of its own: the header's are macros. */
	int (*port_query)(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr);
	int (*gid_query)(struct ibv_context *context, uint32_t port, uint32_t index,
			 struct ibv_gid_entry *entry, uint32_t flags, size_t bytes);
};

/* The same for all threads, loaded by the first call. UNSUPPORTED says what is missing, and which
 * package has it. */
tutti_status verbs_library(const struct verbs_library **library);

/* This process has it already; nothing is loaded. */
bool verbs_library_is_loaded(void);

/* A port of a device. Returns errno's value. */
int verbs_port_query(const struct verbs_library *library, struct ibv_context *context, uint8_t port,
		     struct ibv_port_attr *attr);

#endif
